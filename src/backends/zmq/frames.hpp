// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/in_flight.hpp"
#include "core/backend.hpp"

#include <cstdint>
#include <span>

namespace accel::zmq {

/// Sends header and payload to the socket's peer without a copy, and counts what ZeroMQ then holds of the
/// slot. Only after `can_send`. False: it did not leave whole; zmq_errno() tells why. `tell`: `in_flight`'s
/// list learns when a lent payload is released.
[[nodiscard]] bool send_message(void* socket, in_flight& frames, const core::slot_memory& memory,
                                const core::outgoing& message, bool tell) noexcept;

/// True if ZeroMQ has released all of the slot's last message, so this one can leave. So ZeroMQ holds at most
/// one message per slot for a peer that reads nothing.
[[nodiscard]] bool can_send(in_flight& frames, const core::outgoing& message) noexcept;

}  // namespace accel::zmq
