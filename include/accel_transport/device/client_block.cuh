#pragma once

#include <accel_transport/device/client.hpp>

#include <cstdint>

/// A whole block of threads makes one call. All of its threads call these together.
namespace accel::device {

/// In shared memory, one for each call that the block has open.
struct block_call {
    call_ref call;
    status outcome;
};

namespace detail {

__device__ inline bool is_first_of_block() {
    return threadIdx.x + threadIdx.y + threadIdx.z == 0;
}

}  // namespace detail

/// As `begin`: one thread begins, and all learn what it got.
__device__ inline status block_begin(const channel_ref& channel, block_call& turn) {
    __syncthreads();  // nobody looks at the last one any more
    if (detail::is_first_of_block()) turn.outcome = begin(channel, turn.call);
    __syncthreads();
    return turn.outcome;
}

/// As `submit`, with what all threads of the block have written of the request.
__device__ inline status block_submit(const channel_ref& channel, block_call& turn, std::uint64_t length,
                                      const call_options& with = {}) {
    __syncthreads();
    if (detail::is_first_of_block()) turn.outcome = submit(channel, turn.call, length, with);
    __syncthreads();
    return turn.outcome;
}

/// As `wait`.
__device__ inline status block_wait(const channel_ref& channel, block_call& turn,
                                    std::int64_t timeout_ns = until_its_end) {
    __syncthreads();
    if (detail::is_first_of_block()) turn.outcome = wait(channel, turn.call, timeout_ns);
    __syncthreads();
    return turn.outcome;
}

/// As `release`, when no thread of the block reads the response any more.
__device__ inline void block_release(const channel_ref& channel, const block_call& turn) {
    __syncthreads();
    if (detail::is_first_of_block()) (void)release(channel, turn.call);
}

}  // namespace accel::device
