// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// The sending half of an RC queue pair: fetch WQEs, cut them into packets, keep the window, take the
/// answers, go back when something was lost.
namespace accel::softnic::requester {

/// A doorbell rang on this queue pair's page: read its doorbell record.
void on_doorbell(hca& nic, queue_pair& qp);

/// Fetches the next WQE into the ring of flights. False when there is none, or no room, or it is not time
/// yet.
bool fetch(hca& nic, queue_pair& qp);

/// Does one thing: fetches a WQE, or sends a packet. False when there is nothing to do now.
bool advance(hca& nic, queue_pair& qp);

/// An ACK, NAK, read or atomic response.
void on_response(hca& nic, queue_pair& qp, const arrival& in);

/// The retry timer, from now; none where the program asked for none.
void start_retry_timer(hca& nic, queue_pair& qp);

/// Retry and RNR timers.
void on_time(hca& nic, queue_pair& qp);

/// Starts over at `psn` (go-back-N).
void rewind(hca& nic, queue_pair& qp, std::uint32_t psn);

/// SQD: everything sent is acknowledged; tell the program if it asked.
void check_drained(hca& nic, queue_pair& qp);

/// True while time can change something: flights without an answer, an RNR wait, a late fetch.
[[nodiscard]] bool has_work(const queue_pair& qp);

}  // namespace accel::softnic::requester
