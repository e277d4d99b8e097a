// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// Completions, and what becomes of a queue pair when one of them is an error.
namespace accel::softnic::completions {

/// The send WQE is done. Unsignalled ones leave no CQE.
void complete_send(hca& nic, queue_pair& qp, const send_request& request);
/// The receive that the responder holds is done; `from` is the packet that ended the message.
void complete_receive(hca& nic, queue_pair& qp, const receive_request& receive, const packet_header& from,
                      std::uint32_t byte_count);

/// Error CQE for the oldest send WQE, then error state: everything else is flushed. Completions stay in
/// order, so a failure of a later WQE waits (flight::failed) until it is the oldest.
void fail_send(hca& nic, queue_pair& qp, failure why);
/// Error CQE for the receive in progress, then error state.
void fail_receive(hca& nic, queue_pair& qp, failure why);
/// Error state because of an asynchronous event (ibv_event_type), without an error CQE of its own.
void fail_queue_pair(hca& nic, queue_pair& qp, std::uint32_t event);
/// Error state without an event: MODIFY_QP to ERR.
void enter_error(hca& nic, queue_pair& qp);

/// In the error state: completes what the program posted meanwhile.
void flush(hca& nic, queue_pair& qp);
void raise_event(queue_pair& qp, std::uint32_t event);

}  // namespace accel::softnic::completions
