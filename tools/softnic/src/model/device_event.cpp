// SPDX-License-Identifier: Apache-2.0
#include "model/device_event.hpp"

#include <cstring>

#include <endian.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

// Where the fields of an element stand, in bytes.
constexpr std::size_t type_at = 1;
constexpr std::size_t subtype_at = 3;
constexpr std::size_t failed_queue_at = 32;
constexpr std::size_t syndrome_at = 43;
constexpr std::size_t port_at = 40;
constexpr std::size_t queue_type_at = 52;
constexpr std::size_t number_at = 56;

constexpr std::byte overrun{1};
constexpr std::byte port_down{1};
constexpr std::byte port_active{4};
constexpr std::byte type_of_targets{6};

void put_number(event_element& to, std::size_t place, std::uint32_t number) {
    const std::uint32_t big_endian = htobe32(number);
    std::memcpy(to.data() + place, &big_endian, sizeof big_endian);
}

}  // namespace

event_element encode(const event_report& from) {
    event_element to{};
    to[type_at] = static_cast<std::byte>(from.what);
    switch (from.what) {
        case device_event::port_change:
            to[subtype_at] = from.up ? port_active : port_down;
            to[port_at] = static_cast<std::byte>(from.number << 4);
            break;
        case device_event::completion_queue_error:
            put_number(to, failed_queue_at, from.number);
            to[syndrome_at] = overrun;
            break;
        case device_event::target_drained:
        case device_event::target_key_violation:
            to[queue_type_at] = type_of_targets;
            put_number(to, number_at, from.number);
            break;
        default:
            put_number(to, number_at, from.number);
    }
    return to;
}

device_event event_of_queue_pair(std::uint32_t verbs_event) {
    switch (verbs_event) {
        case IBV_EVENT_COMM_EST:
            return device_event::connection_established;
        case IBV_EVENT_SQ_DRAINED:
            return device_event::send_queue_drained;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return device_event::last_receive_reached;
        case IBV_EVENT_QP_REQ_ERR:
            return device_event::invalid_request;
        case IBV_EVENT_QP_ACCESS_ERR:
            return device_event::access_error;
        default:
            return device_event::queue_error;
    }
}

}  // namespace accel::softnic
