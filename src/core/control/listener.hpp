// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/net/unique_fd.hpp"

#include <accel_transport/status.hpp>

#include <cstdint>
#include <string>

namespace accel::core {

/// A listening socket that goes on listening when descriptors run out. One thread.
class listener {
  public:
    enum class outcome : std::uint8_t {
        accepted,
        none,  ///< nobody waits
        shed,  ///< there was no descriptor or memory for a connection, which was closed unread if possible
    };

    /// Hears nobody.
    listener() = default;
    [[nodiscard]] static result<listener> open(const std::string& host, std::uint16_t port);
    [[nodiscard]] outcome accept(unique_fd& out) noexcept;
    /// After `shed`: what is short, as errno.
    [[nodiscard]] int shortage() const noexcept { return shortage_; }
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  private:
    unique_fd socket_;
    unique_fd spare_;  ///< closed for a moment to accept, and close, a connection when descriptors run out
    std::uint16_t port_ = 0;
    int shortage_ = 0;
};

/// The most descriptors that this process may have open.
[[nodiscard]] std::uint32_t descriptor_limit() noexcept;
/// Of those, what sessions may have together. Control connections and strangers have shares of their own
/// (control_server.cpp), and some stay for the application.
[[nodiscard]] inline std::uint32_t session_descriptor_limit() noexcept {
    return descriptor_limit() / 2;
}

}  // namespace accel::core
