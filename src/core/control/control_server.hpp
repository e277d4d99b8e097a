#pragma once

#include "core/clock.hpp"
#include "core/control/security.hpp"
#include "core/control/session.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace accel::core {

/// The server side of the control plane on one host:port: one thread, one CURVE ROUTER socket. Checks what
/// arrives, opens and closes sessions at its host, exchanges heartbeats, and ends all sessions of a client
/// that went silent.
class control_server {
  public:
    /// Binds to host:port (0: any free). `host_core` must outlive it. Logs a sentence for each refusal.
    [[nodiscard]] static result<std::unique_ptr<control_server>> listen(
        context_state& context, const std::string& host, std::uint16_t port,
        std::shared_ptr<const security_identity> security, nanoseconds peer_timeout, session_host& host_core);
    ~control_server();
    control_server(const control_server&) = delete;
    control_server& operator=(const control_server&) = delete;

    [[nodiscard]] std::uint16_t port() const noexcept;
    /// Tells the client that the server ended its session. Thread-safe; returns at once; unknown ids are
    /// ignored.
    void end_session(std::uint64_t session_id, status why) noexcept;

  private:
    class impl;
    explicit control_server(std::unique_ptr<impl> impl) noexcept;
    std::unique_ptr<impl> impl_;
};

}  // namespace accel::core
