// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/options.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace accel::report {

/// `accel::parse_duration` of a time that a run takes or waits: above 0, and at most a day.
[[nodiscard]] result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// What is wrong with such a time, for a command line; empty: nothing.
[[nodiscard]] std::string check_duration(const std::string& text);

}  // namespace accel::report
