// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/socket.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace accel::zmq {

struct monitor_event {
    int what = 0;  ///< ZMQ_EVENT_…
    std::uint32_t value = 0;
};

inline constexpr int handshake_failures =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

/// The events of another socket. Destroyed before the socket it watches.
class socket_monitor {
  public:
    socket_monitor() noexcept = default;
    [[nodiscard]] static result<socket_monitor> open(void* context, owned_socket& watched, int events);
    socket_monitor(socket_monitor&& other) noexcept
        : watched_(std::exchange(other.watched_, nullptr)), pair_(std::move(other.pair_)) {}
    socket_monitor& operator=(socket_monitor&& other) noexcept;
    ~socket_monitor() { close(); }

    void close() noexcept;
    [[nodiscard]] owned_socket& socket() noexcept { return pair_; }
    /// Never blocks.
    [[nodiscard]] std::optional<monitor_event> next() noexcept;

  private:
    void* watched_ = nullptr;
    owned_socket pair_;
};

}  // namespace accel::zmq
