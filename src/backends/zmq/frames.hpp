// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/in_flight.hpp"
#include "core/backend.hpp"

#include <cstdint>
#include <span>

namespace accel::zmq {

/// Sends header and payload to the socket's peer without a copy, and counts what ZeroMQ then holds of the
/// slot. Only after `can_send`. False: it did not leave whole; zmq_errno() tells why. `tell`: `in_flight`'s
/// list learns when a lent payload is let go.
[[nodiscard]] bool send_message(void* socket, in_flight& frames, const core::slot_memory& memory,
                                const core::outgoing& message, bool tell) noexcept;

/// Whether this message can leave now: ZeroMQ has let go of all of its slot's last message. So what ZeroMQ
/// holds for a peer that reads nothing is at most one message a slot.
[[nodiscard]] bool can_send(in_flight& frames, const core::outgoing& message) noexcept;

}  // namespace accel::zmq
