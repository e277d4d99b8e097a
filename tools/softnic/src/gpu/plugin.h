/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTNIC_GPU_PLUGIN_H
#define SOFTNIC_GPU_PLUGIN_H

#include <stdint.h>

/* Between libsoftnic.so and libsoftnic_cuda.so, which it loads when a program with a CUDA driver registers
 * memory. */

struct softnic_dma_ops;

struct softnic_cuda_options {
    int copies_by_driver; /* 0: by the copy kernel */
    int peer_memory;      /* 0: a pointer to GPU memory is refused (EFAULT) */
    uint64_t idle_us;     /* the copy kernel leaves after this time without work */
    uint64_t timeout_ms;  /* a copy that takes longer is an error, and the last one */
};

#define SOFTNIC_CUDA_LIBRARY "libsoftnic_cuda.so"
#define SOFTNIC_CUDA_OPEN "softnic_cuda_open"

/* The functions and their `self`, or NULL if this process has no usable CUDA driver. Called once. */
typedef const struct softnic_dma_ops* softnic_cuda_open_function(const struct softnic_cuda_options* options,
                                                                 void** self);

#endif
