// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string_view>

/// What is said of errno where the system gives no descriptor.
namespace accel::core {

/// True: descriptors or the OS's memory are short. What was wanted may be had later, and says nothing about a peer.
[[nodiscard]] bool is_shortage(int number) noexcept;
/// True: this process may not, or this kernel cannot, whatever the peer does: a sandbox or a firewall of this machine.
[[nodiscard]] bool is_forbidden(int number) noexcept;

/// What to do about errno of a socket, or of another call that makes a descriptor.
[[nodiscard]] std::string_view advice_for(int number) noexcept;

/// "no descriptor is left for a session; …", or what else errno says. `wanted` goes on: "for a session".
/// `out_of_memory` for the OS's memory, else `system_error`.
[[nodiscard]] error no_descriptor(std::string_view wanted, int number);
/// "the system cannot watch the descriptors of tcp (…); …".
[[nodiscard]] error cannot_watch(std::string_view whose, int number);

}  // namespace accel::core
