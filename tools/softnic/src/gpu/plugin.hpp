// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// Between libsoftnic.so and libsoftnic_cuda.so, which it loads when a program with a CUDA driver registers
/// memory.

struct softnic_dma_ops;

struct softnic_cuda_options {
    bool copies_by_driver = false;     ///< else by the copy kernel
    bool peer_memory = true;           ///< false: a pointer to GPU memory is refused (EFAULT)
    std::uint64_t idle_us = 0;         ///< the copy kernel leaves after this time without work
    std::uint64_t stay_ms = 0;         ///< and after this time in any case
    std::uint64_t timeout_ms = 0;      ///< a copy that takes longer is an error, and the last one
    void (*begin_thread)() = nullptr;  ///< called by each thread of the plugin's own, as its first step
};

inline constexpr const char* softnic_cuda_library = "libsoftnic_cuda.so";
inline constexpr const char* softnic_cuda_entry = "softnic_cuda_open";

/// The functions and their `self`, or null if this process has no usable CUDA driver. Called once.
using softnic_cuda_open_function = const softnic_dma_ops*(const softnic_cuda_options* options, void** self);
