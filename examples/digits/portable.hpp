#pragma once

/// Code for both processors: ACCEL_HOST_DEVICE before a function makes it one that CUDA kernels may call too.
/// So that both give the same bits, the host's code and the kernels are compiled without contraction of a
/// product and a sum into one operation (-ffp-contract=off, -fmad=false), and nothing takes its functions of
/// a library.
#if defined(__CUDACC__)
#define ACCEL_HOST_DEVICE __host__ __device__
#else
#define ACCEL_HOST_DEVICE
#endif
