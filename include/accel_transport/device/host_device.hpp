#pragma once

/// Marks a function that a CUDA kernel and the host may call alike. Without a CUDA compiler it says nothing.
#if defined(__CUDACC__)
#define ACCEL_HOST_DEVICE __host__ __device__
#else
#define ACCEL_HOST_DEVICE
#endif
