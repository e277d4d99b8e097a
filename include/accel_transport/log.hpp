// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace accel {

/// The library logs lines of this level and above. One level for the process.
enum class log_level : std::uint8_t { debug, info, warning, error, off };

/// The application's logger. `line` is one sentence without time, level or newline, with control characters
/// replaced; it is valid during the call. Only the library's log thread calls it, one call at a time: it may
/// block, and then lines are dropped and counted. An exception that it throws is ignored.
using log_function = std::function<void(log_level level, std::string_view line)>;

}  // namespace accel
