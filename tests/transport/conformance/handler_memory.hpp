// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/accel_transport.hpp>

#include <string>

/// Where the suite's handlers have their bytes: on the host, or as ACCEL_TEST_MEMORY says, cuda:N, or fake
/// for a stand-in for a GPU where there is none.
namespace accel::tests {

/// Why no server can have its bytes there, on this machine or in this build; empty: it can.
[[nodiscard]] std::string missing_handler_memory();
/// Handlers have their bytes on a GPU, or its stand-in: they are copied there and back, and answers of
/// several streams overtake each other.
[[nodiscard]] bool handlers_on_gpu();
/// A context in which `cuda:0` may be the stand-in, and handlers on `gpu` are called by the device code
/// (gpu_harness.hpp).
void prepare(context& made);
/// What a server needs so that handlers may hold as many exchanges as the suite does.
void prepare(server_options& options);

}  // namespace accel::tests
