// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/service.hpp>

#include <cstdint>

struct CUstream_st;

/// Persistent kernels, for tests and measurements of GPU-resident services.
namespace accel::tests {

/// What one block measured, in nanoseconds of the GPU's clock: from a request's arrival to its response
/// having been posted. In the host's memory.
struct kernel_times {
    std::uint64_t served = 0;
    std::uint64_t total_ns = 0;
    std::uint64_t min_ns = 0;
    std::uint64_t max_ns = 0;
};

/// `tokens`: the first byte of a request says how many parts its response has, each as long as its number, all of whose
/// bytes are that number; a cancelled one ends early.
enum class kernel_work { echo, fail, drop, tokens };

/// `blocks` blocks of `threads` serve until the service is stopped. `times`, one a block, may be null; memory
/// that kernels reach.
[[nodiscard]] bool launch_gpu_resident(const device::service_ref& service, kernel_work work, int blocks, int threads,
                                       kernel_times* times, CUstream_st* stream);
/// The same for a service whose sessions have one owner each: a block, or where `threads` is 32, a warp.
[[nodiscard]] bool launch_owners(const device::service_ref& service, kernel_work work, int blocks, int threads,
                                 kernel_times* times, CUstream_st* stream);
/// Null without a GPU.
[[nodiscard]] CUstream_st* open_stream();
void close_stream(CUstream_st* stream);
/// Waits for all of it; empty, or what went wrong.
[[nodiscard]] const char* stream_failure(CUstream_st* stream);
/// Zeroed, of the host, for kernels; lives as long as the process.
[[nodiscard]] kernel_times* allocate_times(int count);

}  // namespace accel::tests
