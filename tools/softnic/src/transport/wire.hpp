// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/hca.hpp"

/// The way out: finds the node that has the destination, and lets the fault rules have their say.
namespace accel::softnic::wire {

/// A packet being built. `contents` is null while the way is full: try again later.
struct outgoing {
    packet* contents = nullptr;
    int to_node = -1;  ///< -1: nobody there; built for the trace, then lost
    /// May the payload stay where it is? Only to this very process, with nothing that could keep the packet
    /// back.
    bool may_refer = false;

    /// Refers to the bytes, if allowed, in place of a copy. False: copy them.
    bool refer(const std::byte* bytes) const;
    static constexpr std::size_t worth_referring_bytes = 256;
};

/// What a modelled link does with a packet: acknowledgements pass by what waits.
enum class urgency : std::uint8_t { in_turn, express };

/// Fills in both ends of the header; the caller fills in the rest.
[[nodiscard]] outgoing begin(hca& nic, const queue_pair& from, port_address to, std::uint32_t to_qpn,
                             urgency how = urgency::in_turn);
/// Sends it. When it arrives, with a modelled link.
std::uint64_t finish(hca& nic, const queue_pair& from, const outgoing& out);

/// Sends what faults held back and whose time has come. True if something moved.
bool release_held(hca& nic);

/// Takes the port down (or up again), tells the program.
void set_port(hca& nic, port_address where, bool up, std::uint64_t up_again_at);

/// One line for people.
[[nodiscard]] std::string describe(const packet_header& header);

}  // namespace accel::softnic::wire
