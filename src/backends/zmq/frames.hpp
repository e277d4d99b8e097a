#pragma once

#include "backends/zmq/in_flight.hpp"
#include "core/backend.hpp"

#include <cstdint>
#include <span>

namespace accel::zmq {

/// Sends header and payload to the socket's peer without a copy, but for what is so short that a copy is
/// cheaper. `again`: the slot's last lent payload is still held, or nothing was sent for another reason,
/// which zmq_errno() tells. `tell`: of a lent payload, `in_flight`'s list learns. With `to_router`, the frame
/// that addresses the peer has been sent already.
[[nodiscard]] bool send_message(void* socket, in_flight& frames, const core::slot_memory& memory,
                                const core::outgoing& message, bool tell) noexcept;

/// Whether this message can leave now: its slot's last lent payload has been let go.
[[nodiscard]] bool can_send(in_flight& frames, const core::outgoing& message) noexcept;

}  // namespace accel::zmq
