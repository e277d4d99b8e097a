// SPDX-License-Identifier: Apache-2.0
#include "report/durations.hpp"

#include <fmt/format.h>

namespace accel::report {

result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
    auto read = accel::parse_duration(text);
    if (!read || (*read > std::chrono::nanoseconds{0} && *read <= std::chrono::hours{24})) return read;
    return error{status::invalid_argument, 0,
                 fmt::format("'{}' is not a valid duration: expected more than 0 and at most 24h", text)};
}

std::string check_duration(const std::string& text) {
    const auto read = parse_duration(text);
    return read ? std::string{} : read.error().message;
}

}  // namespace accel::report
