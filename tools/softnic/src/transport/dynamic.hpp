// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// Dynamically connected transport: as RC, but an initiator (DCI) says with each message where it goes. It has one
/// connection at a time, and opens the next one when everything before is done. A target (DCT) has one end for each
/// initiator, a queue pair that answers as one of RC does. What fails is the connection; the target goes on.
namespace accel::softnic::dynamic {

/// Initiator: may this message's packets go out? Opens a connection, if it can be now.
[[nodiscard]] bool connect(hca& nic, queue_pair& qp, const flight& next);
/// What a request says about its connection.
void stamp(hca& nic, const queue_pair& qp, packet_header& header);

/// A request to a target.
void on_request(hca& nic, queue_pair& target, const arrival& in);
/// Ends all connections of a target. Their initiators' requests get no answer any more.
void forget_connections(hca& nic, queue_pair& target);

}  // namespace accel::softnic::dynamic
