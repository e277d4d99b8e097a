#pragma once

#include "core/control/log_limit.hpp"
#include "core/control/zmq_socket.hpp"

#include <string>
#include <unordered_map>

namespace accel::core {

/// Logs the clients that a server socket turned away before they could say anything. One thread.
class handshake_log {
  public:
    [[nodiscard]] static result<handshake_log> open(void* zmq_context, zmq_socket& server);
    [[nodiscard]] zmq_socket& socket() noexcept { return monitor_.socket(); }
    void take_events();

  private:
    void report(const std::string& address);

    socket_monitor monitor_;
    std::unordered_map<std::uint32_t, std::string> addresses_;  ///< of open connections, by descriptor
    monitor_event failure_;  ///< waits for the descriptor that it belongs to
    log_limit limit_;
};

}  // namespace accel::core
