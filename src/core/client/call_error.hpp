// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/completion.hpp>
#include <accel_transport/status.hpp>

#include <cstddef>
#include <string_view>

namespace accel::core {

class channel_core;

/// Why a blocking call with a request of `length` bytes was not sent. `reason`: as `channel::last_error`.
[[nodiscard]] error failed_call(const channel_core& over, status why, std::size_t length, std::string_view reason);
/// Why it failed, with the handler's text.
[[nodiscard]] error failed_answer(const call_outcome& content);
/// A blocking call was asked for parts.
[[nodiscard]] error no_parts_in_call();

}  // namespace accel::core
