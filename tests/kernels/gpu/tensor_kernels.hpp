// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/graph.hpp>

struct CUstream_st;

namespace accel::tests {

/// Gives `nodes` kernels to a stream: the last writes the iteration's input to its output, each byte greater
/// by `nodes`. With tensors in place instead, if the iteration has no input.
[[nodiscard]] bool record_sums(CUstream_st* stream, const device::graph_iteration& iteration, int nodes);
/// Every third request fails with `application_error` and this code: those whose first byte can be divided
/// so.
[[nodiscard]] bool record_failures(CUstream_st* stream, const device::graph_iteration& iteration, std::uint32_t code);
/// Something that no graph on a GPU can do.
[[nodiscard]] bool record_host_function(CUstream_st* stream);

}  // namespace accel::tests
