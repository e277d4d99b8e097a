// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// The memory that recorded kernels work on, iteration after iteration (gpu_graph.hpp). All of it is memory of their
/// GPU, and lies at the same place in every iteration.
namespace accel::device {

/// The outcome of one request.
struct iteration_answer {
    std::uint64_t length = 0;    ///< of the response, bytes
    status reason = status::ok;  ///< other than ok: the request fails with it …
    std::uint16_t reserved = 0;
    std::uint32_t code = 0;  ///< … and this code of the service's own
};

/// As kernels are given it, by value. Of their requests [0, *count) they may read `exchanges` in place, write their
/// responses in place or to `output`, and set `answers`; they end none of them, which the iteration does.
struct graph_iteration {
    /// Requests of this iteration. 0 in the last iteration of all, which a stop makes: recorded kernels run in it, too.
    const std::uint32_t* count = nullptr;
    const exchange_ref* exchanges = nullptr;  ///< `batch`
    iteration_answer* answers = nullptr;      ///< `batch`; `ok` with `output_bytes` at the beginning of each iteration
    /// `batch` × `input_bytes`, one behind the other: requests, copied. Of requests that this iteration does
    /// not have there are older bytes. Null where `input_bytes` is 0.
    std::byte* input = nullptr;
    std::byte* output = nullptr;  ///< `batch` × `output_bytes`: responses, copied from here. Likewise.
    std::size_t input_bytes = 0;
    std::size_t output_bytes = 0;
    std::uint32_t batch = 0;     ///< requests of an iteration, at most
    std::uint32_t instance = 0;  ///< which of several recordings this is
};

}  // namespace accel::device
