// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <cstdint>

/// Events that carry no message, as links of every backend make them.
namespace accel::core {

[[nodiscard]] inline link_event buffer_released_event(void* owner, std::uint32_t slot) noexcept {
    link_event event;
    event.kind = event_kind::buffer_released;
    event.owner = owner;
    event.header.slot = slot;
    return event;
}

[[nodiscard]] inline link_event lost_event(void* owner, status why) noexcept {
    link_event event;
    event.kind = event_kind::lost;
    event.reason = why;
    event.owner = owner;
    return event;
}

}  // namespace accel::core
