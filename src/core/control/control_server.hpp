// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/control/security.hpp"
#include "core/control/session.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <string>

namespace accel::core {

/// Limits for strangers and clients at a server's port; `server_options` explains each.
struct control_limits {
    std::uint32_t max_connections = 4096;
    std::uint32_t max_client_connections = 3072;
    std::uint32_t max_handshakes = 1024;
    /// Unauthenticated connections. Beyond it the oldest of the address with the most is dropped.
    std::uint32_t max_half_open = 1024;
    nanoseconds half_open_timeout = std::chrono::seconds{3};
    /// Without a session.
    nanoseconds idle_timeout = std::chrono::seconds{10};
};

/// The server side of the control plane on one host:port: one thread, one listening socket, TLS where there are keys.
/// Checks what arrives, opens and closes sessions at its host, exchanges heartbeats, ends all sessions of a client that
/// went silent, and passes data connections on. Each step is bounded, so that no peer keeps others waiting.
class control_server {
  public:
    /// Binds to host:port (0: any free). `host_core` must outlive it. Logs a sentence for each refusal, but
    /// few a second.
    [[nodiscard]] static result<std::unique_ptr<control_server>> listen(const std::string& host, std::uint16_t port,
                                                                        std::shared_ptr<live_security> security,
                                                                        nanoseconds peer_timeout,
                                                                        session_host& host_core,
                                                                        const control_limits& limits = {});
    ~control_server();
    control_server(const control_server&) = delete;
    control_server& operator=(const control_server&) = delete;

    struct ended_session {
        std::uint64_t id = 0;
        status why = status::ok;
    };
    using ended_sessions = std::list<ended_session>;

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// Tells the client that the server ended its session. Thread-safe; returns at once; unknown ids are ignored.
    /// `notice`: a list of one, for which memory may have run out by now.
    void end_session(std::uint64_t session_id, status why, ended_sessions notice = ended_sessions(1)) noexcept;
    /// Tells all clients that the server drains. Thread-safe; returns at once.
    void drain() noexcept;
    /// Checks soon whether keys have changed. Thread-safe.
    void wake() noexcept;

    class impl;

  private:
    explicit control_server(std::unique_ptr<impl> impl) noexcept;
    std::unique_ptr<impl> impl_;
};

}  // namespace accel::core
