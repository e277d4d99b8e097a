// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/control/session.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace accel::core {

/// The control plane of `local`: servers of this process by name. Thread-safe.
namespace in_process {

/// `invalid_argument` when the name is taken.
[[nodiscard]] result<void> add(const std::string& name, session_host& host);
/// Returns once no `open_session` on it is under way.
void remove(const std::string& name, const session_host& host);
[[nodiscard]] result<session_grant> open_session(const std::string& name, const session_request& request);

[[nodiscard]] result<std::uint32_t> find_target(const std::string& name, std::string_view target);
[[nodiscard]] result<target_page> list_targets(const std::string& name, std::string_view after);
[[nodiscard]] result<health_state> check_health(const std::string& name, std::string_view target);

/// How a server offers `local` to `auto://`: names this very process, so that only it can accept.
[[nodiscard]] std::string offer(std::string_view name);
/// The name in an offer of this process; empty for any other string.
[[nodiscard]] std::string accepted_name(std::string_view offer);

}  // namespace in_process
}  // namespace accel::core
