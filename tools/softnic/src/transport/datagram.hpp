// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// UD queue pairs: one packet a message, no promises.
namespace accel::softnic::datagram {

/// Sends the next message. False when there is none, or the way is full.
bool advance(hca& nic, queue_pair& qp);
/// Delivers, or drops in silence: wrong Q_Key, no receive posted.
void on_packet(hca& nic, queue_pair& qp, const arrival& in);

}  // namespace accel::softnic::datagram
