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
        shed,  ///< no descriptor was left: a connection was closed unheard
    };

    /// Hears nobody.
    listener() = default;
    [[nodiscard]] static result<listener> open(const std::string& host, std::uint16_t port);
    [[nodiscard]] outcome accept(unique_fd& out) noexcept;
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

  private:
    unique_fd socket_;
    unique_fd
        spare_;  ///< given up for a moment to take, and close, a connection that there is no descriptor for
    std::uint16_t port_ = 0;
};

/// So many descriptors this process may have open at once.
[[nodiscard]] std::uint32_t descriptor_limit() noexcept;

}  // namespace accel::core
