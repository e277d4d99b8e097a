// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks a function that a CUDA kernel and the host may call alike. Without a CUDA compiler it says nothing.
#if defined(__CUDACC__)
#define ACCEL_HOST_DEVICE __host__ __device__
#else
#define ACCEL_HOST_DEVICE
#endif

/// The same for what has to become part of its caller, where most of its branches are decided.
#if defined(__CUDACC__)
#define ACCEL_HOST_DEVICE_INLINE __host__ __device__ __forceinline__
#else
#define ACCEL_HOST_DEVICE_INLINE inline __attribute__((always_inline))
#endif

/// The same for what is seldom called: it takes no room among what is called always.
#if defined(__CUDACC__)
#define ACCEL_HOST_DEVICE_SELDOM __host__ __device__ __noinline__
#else
#define ACCEL_HOST_DEVICE_SELDOM __attribute__((noinline))
#endif

/// Goes before a template for host and device that calls a function of only one of them. Its callers see to it that the
/// call is allowed where they use it.
#if defined(__CUDACC__)
#define ACCEL_UNCHECKED_CALLS _Pragma("nv_exec_check_disable")
#else
#define ACCEL_UNCHECKED_CALLS
#endif
