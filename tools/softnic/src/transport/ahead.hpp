// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// With a modelled link a packet waits in its ring until the link has brought it, but its payload goes to memory at
/// once, as an adapter writes while a message arrives. Nobody may look at a message before its end tells of it, so the
/// last packet's payload waits too. A packet is delivered in its time, with all checks, and is written then if it was
/// not. Of one queue pair only the message in progress is written, so that no later one comes in its way.
namespace accel::softnic::ahead {

/// For a packet that waits: writes its payload, unless it is its message's last.
[[nodiscard]] inbox::look place(hca& nic, const arrival& in, placement& into);
/// For a packet of an RDMA write that is due: begins to write its payload, where that takes time.
void place_due(hca& nic, const arrival& in, placement& into);
/// May a packet be delivered?
[[nodiscard]] bool is_in_memory(const placement& of);
/// Lets engines begin with what they have kept.
void push(hca& nic);

}  // namespace accel::softnic::ahead
