// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/transport/side.hpp"

#include <string>
#include <vector>

/// A bare ZeroMQ REQ against a REP over TCP, and the proxy that may stand between them.
namespace accel::bench {

/// Connects a REQ socket to "tcp://…": to the REP socket, or to the proxy before it.
[[nodiscard]] result<std::unique_ptr<echo>> connect_request_socket(const std::string& endpoint, std::size_t size_bytes);

/// Serves a REP socket until SIGTERM; returns the exit status.
[[nodiscard]] int serve_reply_socket();

/// `zmq_proxy` between clients and the REP socket at `backend`, until SIGTERM; returns the exit status.
[[nodiscard]] int serve_zmq_proxy(const std::string& backend);

}  // namespace accel::bench
