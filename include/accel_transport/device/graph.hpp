// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/service_ref.hpp>

#include <cstddef>
#include <cstdint>

/// The memory of recorded kernels (gpu_graph.hpp): on their GPU, at the same addresses in every iteration.
namespace accel::device {

/// The outcome of one request.
struct iteration_answer {
    std::uint64_t length = 0;    ///< bytes of the response
    status reason = status::ok;  ///< other than ok: the request fails with this status …
    std::uint16_t reserved = 0;
    std::uint32_t code = 0;  ///< … and with this code of the service's own
};

/// The kernels' argument, passed by value. For requests [0, *count), kernels may read `exchanges` in place, write
/// responses in place or to `output`, and set `answers`. The iteration ends the exchanges; kernels must not.
struct graph_iteration {
    /// Requests of this iteration. 0 in the last iteration, which a stop causes: recorded kernels run in it, too.
    const std::uint32_t* count = nullptr;
    const exchange_ref* exchanges = nullptr;  ///< `batch` elements
    iteration_answer* answers = nullptr;      ///< `batch` elements; each iteration starts with `ok` and `output_bytes`
    /// `batch` × `input_bytes`, consecutively: copies of the requests. Places without a request hold older bytes. Null
    /// if `input_bytes` is 0.
    std::byte* input = nullptr;
    std::byte* output = nullptr;  ///< `batch` × `output_bytes`: responses are copied from here; null if that is 0
    std::size_t input_bytes = 0;
    std::size_t output_bytes = 0;
    std::uint32_t batch = 0;     ///< most requests per iteration
    std::uint32_t instance = 0;  ///< number of this recording
};

}  // namespace accel::device
