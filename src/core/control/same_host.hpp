// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace accel::core {

/// How a server offers `shm` to `auto://`: the offer names its host and its user, so that only processes which can
/// reach the socket and are let in take it. Thread-safe.
namespace same_host {

/// `name`: of the URI, without the '@' of a socket. Empty where the kernel does not say which host this is.
[[nodiscard]] std::string offer(std::string_view name);
/// The name in an offer that a process of this user on this host has made; empty for any other string.
[[nodiscard]] std::string accepted_name(std::string_view offer);

}  // namespace same_host
}  // namespace accel::core
