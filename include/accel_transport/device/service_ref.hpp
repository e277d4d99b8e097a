#pragma once

#include <accel_transport/device/detail/service_layout.hpp>

#include <cstdint>

namespace accel::device {

/// A service as its kernels see it; passed to them by value. Owns nothing: it is good until the service has
/// been stopped.
struct service_ref {
    service_state* state = nullptr;
    session_entry* sessions = nullptr;
    std::uint32_t session_count = 0;
    const session_number* numbers = nullptr;  ///< a hash table with linear probing; `engine::direct`
    std::uint32_t numbers_mask = 0;
    ready_entry* ready = nullptr;  ///< a ring, with room for every receive
    std::uint32_t ready_mask = 0;
    completion_port completions;  ///< whose engine is the service's
    const orders_layout* orders = nullptr;
    const command* commands = nullptr;  ///< a ring
    std::uint32_t command_mask = 0;
    const session_offer* offers = nullptr;
    report_layout* report = nullptr;
    session_report* session_reports = nullptr;
};

/// How the service reaches its device.
[[nodiscard]] ACCEL_HOST_DEVICE inline engine engine_of(const service_ref& service) noexcept {
    return service.completions.by;
}

}  // namespace accel::device
