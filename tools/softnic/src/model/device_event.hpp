// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::softnic {

/// Events of the device, by the numbers that it gives them.
enum class device_event : std::uint8_t {
    completion = 0x00,
    connection_established = 0x02,
    send_queue_drained = 0x03,
    completion_queue_error = 0x04,
    queue_error = 0x05,
    port_change = 0x09,
    invalid_request = 0x10,
    access_error = 0x11,
    receive_queue_error = 0x12,
    last_receive_reached = 0x13,
    receive_limit_reached = 0x14,
    target_drained = 0x1c,
    target_key_violation = 0x1d,
};

/// One element of an event queue, as the device writes it.
using event_element = std::array<std::byte, 64>;

/// What an event is about: the number of a queue or target, or that of a port.
struct event_report {
    device_event what = device_event::completion;
    std::uint32_t number = 0;
    bool up = false;  ///< of a port
};

[[nodiscard]] event_element encode(const event_report& from);

/// The device's number for an asynchronous event of verbs (ibv_event_type) about a queue pair.
[[nodiscard]] device_event event_of_queue_pair(std::uint32_t verbs_event);

}  // namespace accel::softnic
