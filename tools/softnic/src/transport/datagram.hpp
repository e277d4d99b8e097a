// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

#include <optional>

/// UD queue pairs: one packet a message, no promises.
namespace accel::softnic::datagram {

/// Sends the next message. False when there is none, or the way is full.
bool advance(hca& nic, queue_pair& qp);
/// Delivers, or drops in silence: wrong Q_Key, no receive posted.
void on_packet(hca& nic, queue_pair& qp, const arrival& in);
/// The port that an address in a work request means.
[[nodiscard]] std::optional<port_address> route(hca& nic, const queue_pair& qp, const datagram_address& to);

}  // namespace accel::softnic::datagram
