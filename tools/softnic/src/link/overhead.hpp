// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"

#include <cstdint>

/// What a packet occupies on the link besides its payload, in bytes: RoCE v2 over IPv4 and Ethernet, whatever link
/// layer the device claims to have.
namespace accel::softnic::overhead {

inline constexpr std::uint32_t preamble = 8;          ///< with the start delimiter: IEEE 802.3, 3.1.1
inline constexpr std::uint32_t ethernet_header = 14;  ///< IEEE 802.3, 3.1.1
inline constexpr std::uint32_t ethernet_check = 4;    ///< FCS: IEEE 802.3, 3.2.9
inline constexpr std::uint32_t shortest_frame = 64;   ///< header to FCS: IEEE 802.3, 4A.4.2
inline constexpr std::uint32_t gap = 12;              ///< between packets: IEEE 802.3, 4A.4.2
inline constexpr std::uint32_t ipv4 = 20;             ///< RFC 791, without options
inline constexpr std::uint32_t udp = 8;               ///< RFC 768
inline constexpr std::uint32_t bth = 12;              ///< InfiniBand Architecture 1, 9.2; so are the following, 9.3
inline constexpr std::uint32_t deth = 8;
inline constexpr std::uint32_t reth = 16;
inline constexpr std::uint32_t atomic_eth = 28;
inline constexpr std::uint32_t aeth = 4;
inline constexpr std::uint32_t atomic_ack_eth = 8;
inline constexpr std::uint32_t immediate = 4;
inline constexpr std::uint32_t ieth = 4;
inline constexpr std::uint32_t icrc = 4;  ///< InfiniBand Architecture 1, 7.8

/// Headers of the transport behind the BTH.
[[nodiscard]] constexpr std::uint32_t extended_headers(const packet_header& of) {
    switch (of.kind) {
        case packet_kind::datagram:
            return deth + (of.has(packet_flag::immediate) ? immediate : 0);
        case packet_kind::read_request:
            return reth;
        case packet_kind::atomic_request:
            return atomic_eth;
        case packet_kind::atomic_response:
            return aeth + atomic_ack_eth;
        case packet_kind::acknowledge:
        case packet_kind::negative_acknowledge:
            return aeth;
        case packet_kind::read_response:
            return of.has(packet_flag::first) || of.has(packet_flag::last) ? aeth : 0;
        default:
            return (of.kind == packet_kind::write && of.has(packet_flag::first) ? reth : 0) +
                   (of.has(packet_flag::immediate) ? immediate : 0) + (of.has(packet_flag::invalidate) ? ieth : 0);
    }
}

/// Bytes of the packet on the link, gap included. The payload is padded to four bytes (9.2.4).
[[nodiscard]] constexpr std::uint32_t wire_bytes(const packet_header& of) {
    // The value of an atomic response is in its extended header.
    const std::uint32_t payload = of.kind == packet_kind::atomic_response ? 0 : (of.payload_bytes + 3u) & ~3u;
    const std::uint32_t frame =
        ethernet_header + ipv4 + udp + bth + extended_headers(of) + payload + icrc + ethernet_check;
    return preamble + (frame < shortest_frame ? shortest_frame : frame) + gap;
}

}  // namespace accel::softnic::overhead
