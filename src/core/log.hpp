#pragma once

#include <spdlog/spdlog.h>

namespace accel::core {

/// The library's logger ("accel", standard error). Control path only.
[[nodiscard]] spdlog::logger& log();

}  // namespace accel::core
