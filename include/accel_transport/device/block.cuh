#pragma once

#include <accel_transport/device/service.hpp>

#include <cstdint>

/// A whole block of threads works for one request. All of its threads call these together.
namespace accel::device {

/// In shared memory, one for the block.
struct block_turn {
    exchange_ref exchange;
    status outcome;
};

/// As `wait`: one thread waits, and all learn what it got.
__device__ inline status block_wait(const service_ref& service, block_turn& turn, std::int64_t timeout_ns) {
    __syncthreads();  // nobody looks at the last one any more
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        turn.outcome = wait(service, turn.exchange, timeout_ns);
    }
    __syncthreads();
    return turn.outcome;
}

/// As `reply`, with what all threads of the block have written of the response. The outcome is that of one
/// thread's; the others have `ok`.
__device__ inline status block_reply(const service_ref& service, const block_turn& turn,
                                     std::uint64_t length) {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z != 0) return status::ok;
    return reply(service, turn.exchange, length);
}

/// As `fail`.
__device__ inline status block_fail(const service_ref& service, const block_turn& turn, status reason,
                                    std::uint32_t code = 0) {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z != 0) return status::ok;
    return fail(service, turn.exchange, reason, code);
}

}  // namespace accel::device
