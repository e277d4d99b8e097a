// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/net/socket.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <string>
#include <string_view>

/// Unix sockets, the control plane and data connections of `shm`. For the functions of `socket.hpp` their host is
/// `@NAME` and their port 0. They are in the abstract namespace, so that nothing is left of one when its process ends.
namespace accel::core {

/// True for schemes whose URI has a name in place of host and port. Both ends are on this host, and the process itself
/// or the OS says who they are: there are no keys.
[[nodiscard]] constexpr bool within_host(std::string_view scheme) noexcept {
    return scheme == "local" || scheme == "shm";
}

[[nodiscard]] constexpr bool is_unix_socket(std::string_view host) noexcept {
    return host.starts_with('@');
}
/// The longest NAME.
inline constexpr std::size_t max_socket_name = 64;

/// The address of the socket with this name.
[[nodiscard]] socket_address unix_address(std::string_view name) noexcept;

/// False: the peer of a Unix socket is another user's process. The OS vouches for that.
[[nodiscard]] bool is_own_user(int fd) noexcept;
/// "… belongs to another user"; `host` as above.
[[nodiscard]] error another_users_process(const std::string& host);

}  // namespace accel::core
