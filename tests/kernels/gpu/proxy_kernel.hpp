// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/detail/proxy/queue.hpp>

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace accel::tests {

/// What a kernel needs to ask its peer. Slots are of `max_message_bytes`; requests lie in area 0 before they
/// are sent and arrive in area 1, answers in 2 and 3.
struct proxy_asker {
    proxy::send_queue_ref sends;
    proxy::completion_queue_ref completions;
    std::byte* memory = nullptr;
    std::uint32_t local_key = 0;
    std::uint32_t remote_key = 0;
    std::uint32_t slots = 0;           ///< one thread each
    std::uint32_t rounds = 0;          ///< of each slot
    std::uint32_t* arrived = nullptr;  ///< by slot, memory of the GPU: how many answers, 0 at first
    std::uint32_t* over = nullptr;     ///< likewise: threads that have ended
};
/// What became of it; memory of the GPU.
struct proxy_outcome {
    std::uint32_t right = 0;
    std::uint32_t wrong = 0;
    std::uint32_t expired = 0;  ///< threads that gave up
    std::uint32_t sent = 0;     ///< completions that were told of sends
    std::uint32_t strange = 0;  ///< completions of no use
    std::uint64_t nanoseconds = 0;
};

/// A thread for each slot asks, waits for the answer and looks at every word of it; one more takes
/// completions.
void launch_asking(CUstream_st* stream, const proxy_asker& from, proxy_outcome* outcome);
/// One thread posts `count` writes of 8 bytes without immediate data as fast as they are taken.
void launch_posting(CUstream_st* stream, const proxy_asker& from, std::uint32_t count, proxy_outcome* outcome);

/// Memory that is 0 at first. Null: there was none.
[[nodiscard]] void* gpu_memory(std::size_t bytes);
[[nodiscard]] bool pin_for_gpu(void* begin, std::size_t bytes);
void unpin(void* begin);
void end(CUstream_st* stream, void* memory);
/// False: not before `seconds` had passed, or the GPU has failed.
[[nodiscard]] bool finish_within(CUstream_st* stream, double seconds);
/// One that waits for no other.
[[nodiscard]] CUstream_st* make_stream();

}  // namespace accel::tests
