// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/client.hpp>

#include <cstdint>

struct CUstream_st;

/// Kernels that call, for tests of channels of a GPU.
namespace accel::tests {

/// What the calls of one block came to. In the host's memory.
struct client_tally {
    std::uint64_t right = 0;  ///< every byte of the response as it was sent
    std::uint64_t wrong = 0;
    std::uint64_t failed = 0;
    std::uint32_t last_failure = 0;  ///< a `status`
    std::uint32_t reserved = 0;
    std::uint64_t total_ns = 0;  ///< of all calls, on the GPU's clock
    std::uint64_t min_ns = 0;
};

/// By value to a kernel; block i calls by channel i % count.
struct some_channels {
    static constexpr std::uint32_t most = 4;
    device::channel_ref each[most];
    std::uint32_t count = 0;
};

struct call_plan {
    std::uint64_t calls = 0;  ///< of a block, or of a thread; 0: until the channel ends
    std::uint64_t largest = 0;
    bool all_sizes = true;  ///< 0 to `largest`; else `largest`
};

/// For servers that answer as `kernel_work::tokens` does.
struct stream_plan {
    std::uint32_t calls = 0;      ///< of a block
    std::uint32_t tokens = 0;     ///< of each; at most 255
    std::uint32_t parts = 0;      ///< that may be unread
    std::uint32_t cancel_at = 0;  ///< 0: never; else the call is cancelled when so many have come
};

/// Loads the kernels below. A first launch would wait for kernels that stay on the GPU.
[[nodiscard]] bool load_calling_kernels();
/// Each block makes one call at a time. `tallies`: one a block.
[[nodiscard]] bool launch_calling_blocks(const some_channels& channels, const call_plan& plan, int blocks, int threads,
                                         client_tally* tallies, CUstream_st* stream);
/// Each block owns a channel, and makes one call at a time. `tallies`: one a channel.
[[nodiscard]] bool launch_owning_blocks(const some_channels& channels, const call_plan& plan, int threads,
                                        client_tally* tallies, CUstream_st* stream);
/// Each block owns a channel, which may be shared, and reads one stream at a time. `tallies`: one a channel.
[[nodiscard]] bool launch_streaming_blocks(const some_channels& channels, const stream_plan& plan, int threads,
                                           client_tally* tallies, CUstream_st* stream);
/// Each thread makes one call at a time. `tallies`: one a thread.
[[nodiscard]] bool launch_calling_threads(const some_channels& channels, const call_plan& plan, int blocks, int threads,
                                          client_tally* tallies, CUstream_st* stream);
/// Zeroed, of the host, for kernels; lives as long as the process. Null without a GPU.
[[nodiscard]] client_tally* allocate_tallies(int count);

}  // namespace accel::tests
