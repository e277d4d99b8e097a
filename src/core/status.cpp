#include <accel_transport/status.hpp>

#include <array>

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
                                                                      "device_lost"};
    const auto index = static_cast<std::size_t>(s);
    return index < names.size() ? names[index] : "unknown";
}

}  // namespace accel
