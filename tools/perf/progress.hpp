// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/load.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace accel::perf {

/// "tcp://…: 12,345 of 100,000 calls, 6172/s" for people who wait; without control characters.
[[nodiscard]] std::string progress_text(const std::string& uri, const load& what, std::uint64_t answers,
                                        std::chrono::nanoseconds since);

}  // namespace accel::perf
