// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace accel::softnic {

inline constexpr std::size_t max_mtu = 4096;
inline constexpr std::uint32_t psn_mask = 0xffffff;

enum class packet_kind : std::uint8_t {
    send,
    write,
    read_request,
    atomic_request,
    acknowledge,
    negative_acknowledge,
    read_response,
    atomic_response,
    datagram,
};

/// What an RC responder can refuse with. Values of the AETH code field, RNR apart.
enum class nak_code : std::uint8_t {
    sequence = 0,
    invalid_request = 1,
    remote_access = 2,
    remote_operation = 3,
    receiver_not_ready = 0x20,
};

namespace packet_flag {
inline constexpr std::uint8_t first = 1;
inline constexpr std::uint8_t last = 2;
inline constexpr std::uint8_t ack_request = 4;
inline constexpr std::uint8_t immediate = 8;
inline constexpr std::uint8_t solicited = 16;
inline constexpr std::uint8_t invalidate = 32;
inline constexpr std::uint8_t compare_swap = 64;  ///< atomic request: compare and swap, else fetch and add
inline constexpr std::uint8_t has_grh = 128;
}  // namespace packet_flag

/// A port of the fabric: device and port number as the LID or GID says, shared by all processes.
struct port_address {
    std::uint8_t device = 0;
    std::uint8_t port = 1;
    friend bool operator==(port_address, port_address) = default;
};

/// The headers of one packet, in host byte order but for the immediate. Bytes shared between processes:
/// everything in it is checked by who receives it.
struct packet_header {
    packet_kind kind;
    std::uint8_t flags;
    nak_code nak;
    std::uint8_t rnr_timer;  ///< with receiver_not_ready: code of the time to wait
    std::uint16_t payload_bytes;
    port_address from;
    port_address to;
    std::uint16_t source_lid;
    std::uint32_t to_qpn;
    std::uint32_t from_qpn;
    std::uint32_t psn;
    std::uint32_t rkey;
    std::uint64_t address;
    std::uint32_t length;      ///< bytes of the whole message (write), wanted (read), or of the operand (atomic)
    std::uint32_t immediate;   ///< or the rkey to invalidate, big-endian both
    std::uint64_t ready_ns;    ///< modelled link: when its message was ready to leave
    std::uint64_t arrives_ns;  ///< modelled link: not to be looked at before; 0 without
    std::uint64_t swap_or_add;
    std::uint64_t compare;
    std::uint64_t swap_mask;
    std::uint64_t compare_mask;
    std::uint64_t boundary;
    std::uint64_t session;     ///< dynamically connected: number of the connection, greater than any before; or 0
    std::uint64_t access_key;  ///< dynamically connected requests: what the target must have
    std::uint32_t first_psn;   ///< dynamically connected requests: where the connection began
    std::uint32_t qkey;
    std::uint32_t flow_label;
    std::uint8_t service_level;
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
    std::uint8_t direct;   ///< loopback only: the payload is a pointer to the bytes
    std::uint8_t express;  ///< modelled link: passes by what waits
    std::array<std::uint8_t, 16> source_gid;
    std::array<std::uint8_t, 16> destination_gid;

    [[nodiscard]] bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
    [[nodiscard]] bool is_response() const {
        return kind >= packet_kind::acknowledge && kind <= packet_kind::atomic_response;
    }
};

struct packet {
    packet_header header;
    alignas(8) std::array<std::byte, max_mtu> payload;
};

static_assert(std::is_trivially_copyable_v<packet>);

/// A packet that has come in. The header is where no other process can write to it.
struct arrival {
    const packet_header& header;
    std::span<const std::byte> data;
};

[[nodiscard]] std::string_view to_string(packet_kind kind);
[[nodiscard]] std::string_view to_string(nak_code code);

}  // namespace accel::softnic
