// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/function.hpp>

#include <cstdint>
#include <string_view>

namespace accel {

/// The library logs lines of this level and above. There is one level per process.
enum class log_level : std::uint8_t { debug, info, warning, error, off };

/// The application's logger. `line` is one sentence without time, level or newline; control characters are replaced.
/// Valid during the call. Only the library's log thread calls it, one call at a time. It may block; meanwhile lines
/// may be dropped, which are counted. Exceptions are ignored.
using log_function = shared_function<void(log_level level, std::string_view line)>;

}  // namespace accel
