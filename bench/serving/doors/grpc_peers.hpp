// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

/// What gRPC's own API can do, for door_bench: each runs until SIGTERM and prints "serving HOST:PORT".
namespace accel::bench {

/// Answers each ModelInfer with its own tensor of `size_bytes`, which lies where it arrived.
[[nodiscard]] int serve_grpc_echo(std::size_t size_bytes);

/// Passes each call on to the server at "HOST:PORT".
[[nodiscard]] int serve_grpc_proxy(const std::string& to);

}  // namespace accel::bench
