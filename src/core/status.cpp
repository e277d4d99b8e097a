// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/status.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace accel {

std::string_view to_string(status s) noexcept {
    static constexpr std::array<std::string_view, status_count> names{"ok",
                                                                      "again",
                                                                      "timed_out",
                                                                      "cancelled",
                                                                      "peer_lost",
                                                                      "closed",
                                                                      "message_too_large",
                                                                      "overloaded",
                                                                      "invalid_argument",
                                                                      "invalid_state",
                                                                      "unsupported",
                                                                      "unauthorized",
                                                                      "version_mismatch",
                                                                      "protocol_error",
                                                                      "out_of_memory",
                                                                      "system_error",
                                                                      "application_error",
                                                                      "abandoned",
                                                                      "device_lost",
                                                                      "not_found"};
    const auto index = static_cast<std::size_t>(s);
    return index < names.size() ? names[index] : "unknown";
}

void detail::end_with(const error& failure) noexcept {
    const std::string_view code = to_string(failure.code);
    std::fprintf(stderr, "accel: value() of a result that has an error (%.*s): %s\n", static_cast<int>(code.size()),
                 code.data(), failure.message.c_str());
    std::abort();
}

void detail::end_with(status failure) noexcept {
    const std::string_view code = to_string(failure);
    std::fprintf(stderr, "accel: value() of a result that has an error (%.*s)\n", static_cast<int>(code.size()),
                 code.data());
    std::abort();
}

void detail::end_with_value() noexcept {
    std::fputs("accel: error() of a result that has a value\n", stderr);
    std::abort();
}

}  // namespace accel
