// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <string>
#include <string_view>

namespace accel::core {

/// How a server offers `shm` to `auto://`: the offer names its host and its user, so that only processes which can
/// reach the socket and are let in take it. Copies of a virtual machine are one host by all these names, but not by
/// their clocks, so the offer has the time as well. Thread-safe.
namespace same_host {

/// `name`: of the URI, without the '@' of a socket. Empty where the OS does not say which host this is.
[[nodiscard]] std::string offer(std::string_view name);
/// The name in an offer that a process of this user on this host has made since `asked`; empty for any other string.
[[nodiscard]] std::string accepted_name(std::string_view offer, nanoseconds asked);
/// An offer of this user on this host that was made by another clock than this process has.
[[nodiscard]] bool has_another_clock(std::string_view offer, nanoseconds asked);

}  // namespace same_host
}  // namespace accel::core
