#pragma once

#include "core/backend.hpp"

#include <cstdint>

/// Events that carry no message, as links of every backend make them.
namespace accel::core {

[[nodiscard]] inline link_event let_go_event(void* owner, std::uint32_t slot) noexcept {
    link_event event;
    event.kind = event_kind::let_go;
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
