// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// The answering half of an RC queue pair: checks sequence and rights, places data, owes responses.
namespace accel::softnic::responder {

/// A SEND, WRITE, READ or atomic request.
void on_request(hca& nic, queue_pair& qp, const arrival& in);

/// Sends one owed response. False when there is none, or the way is full. Works in the error state too: a
/// refusal must get out.
bool advance(hca& nic, queue_pair& qp);

/// Owes an acknowledgement for everything up to `psn`.
void owe_acknowledgement(queue_pair& qp, std::uint32_t psn);
/// Owes a response of its own. Dropped when a peer asks for far more than it may: its timer recovers.
void owe(queue_pair& qp, const reply& what);
void refuse(hca& nic, queue_pair& qp, std::uint32_t psn, nak_code code);

/// A READ or atomic request, sequence checked; `again` when its PSN was executed before.
void on_read(hca& nic, queue_pair& qp, const packet_header& in, bool again);
void on_atomic(hca& nic, queue_pair& qp, const packet_header& in, bool again);

/// Refuses for good: NAK, error state, and the asynchronous event that goes with it.
void reject(hca& nic, queue_pair& qp, std::uint32_t psn, nak_code code);

}  // namespace accel::softnic::responder
