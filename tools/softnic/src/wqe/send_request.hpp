// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "dma/atomic.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Work queue elements as the device reads them: layout from infiniband/mlx5dv.h, checked field by field.
namespace accel::softnic {

inline constexpr std::size_t wqebb_bytes = 64;           ///< a WQEBB: the stride of the send queue
inline constexpr std::size_t max_send_wqe_bytes = 1008;  ///< `ds` counts 16-byte units in six bits
inline constexpr std::uint32_t max_message_bytes = 1u << 30;

enum class operation : std::uint8_t { nop, send, write, read, atomic, dump, bind };

/// Part of a message: a piece of registered memory, or bytes that came inside the WQE.
struct segment {
    std::uint64_t address = 0;  ///< for inlined bytes: offset into send_request::inlined
    std::uint32_t length = 0;
    std::uint32_t lkey = 0;
    bool inlined = false;
};

/// Where a datagram goes, or a message of a dynamically connected queue pair.
struct datagram_address {
    std::uint32_t qpn = 0;
    std::uint32_t qkey = 0;
    std::uint64_t access_key = 0;  ///< dynamically connected only, in the place of the Q_Key
    std::uint16_t dlid = 0;
    std::uint8_t service_level = 0;
    bool has_grh = false;
    std::uint8_t gid_index = 0;
    std::uint8_t hop_limit = 0;
    std::uint8_t traffic_class = 0;
    std::uint32_t flow_label = 0;
    std::array<std::uint8_t, 16> gid{};

    friend bool operator==(const datagram_address&, const datagram_address&) = default;
};

/// What a memory window is to open. Of length 0: nothing any more.
struct window_request {
    std::uint32_t key = 0;      ///< of the window, as it was at some time
    std::uint8_t variant = 0;   ///< the last byte of its next key
    std::uint32_t lkey = 0;     ///< of the region behind it
    std::uint64_t address = 0;  ///< in that region
    std::uint64_t length = 0;
    std::uint32_t access = 0;  ///< remote bits of ibv_access_flags
};

/// One send WQE, decoded. Reused: decode() keeps the vectors' capacity, so that in the long run it allocates
/// nothing.
struct send_request {
    std::uint16_t index = 0;   ///< the producer index it was posted with; goes back in the CQE
    std::uint16_t wqebbs = 1;  ///< how many WQEBBs it took
    std::uint8_t opcode = 0;   ///< mlx5 opcode, echoed in the CQE
    operation kind = operation::nop;
    bool signalled = false;
    bool solicited = false;
    bool fenced = false;
    bool has_immediate = false;
    bool invalidates = false;
    std::uint32_t immediate = 0;  ///< as it stands in the WQE (big-endian), also the rkey to invalidate
    std::uint32_t length = 0;     ///< bytes of the message
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;
    atomic_operation atomic;
    datagram_address destination;
    window_request window;
    std::vector<segment> segments;
    std::vector<std::byte> inlined;

    [[nodiscard]] bool needs_response() const { return kind == operation::read || is_atomic(); }
    [[nodiscard]] bool is_atomic() const { return kind == operation::atomic; }
    /// Does it go to the other side at all?
    [[nodiscard]] bool is_local() const {
        return kind == operation::nop || kind == operation::dump || kind == operation::bind;
    }
};

/// What a WQE must say to be this queue pair's next one.
struct send_expectation {
    std::uint32_t qpn = 0;
    std::uint16_t index = 0;
    bool datagram = false;
    bool ethernet = false;  ///< a RoCE port: every datagram carries a GRH
    bool dynamic = false;   ///< dynamically connected: as RC, with an address in front
};

enum class decode_status : std::uint8_t {
    ok,
    empty,           ///< ds is zero, or smaller than the segments of its opcode
    wrong_queue,     ///< the queue pair number is not this one
    wrong_index,     ///< stale: written for another turn of the ring, or not written yet
    unknown_opcode,  ///< not implemented, or not allowed on this kind of queue pair
    bad_segment,     ///< a segment runs past the end of the WQE
    too_long,        ///< message longer than the device allows
};

[[nodiscard]] std::string_view to_string(decode_status status);

/// How many bytes the WQE starting with these 16 says it has; 0 if its `ds` is not valid.
[[nodiscard]] std::size_t send_wqe_bytes(std::span<const std::byte, 16> control);

/// Decodes one contiguous WQE. Always fills index, wqebbs and opcode, also on failure, for the error CQE.
[[nodiscard]] decode_status decode_send(std::span<const std::byte> wqe, const send_expectation& expected,
                                        send_request& out);

/// Decodes the scatter list of a receive WQE: ends at the first invalid lkey, or with the WQE.
void decode_receive(std::span<const std::byte> wqe, std::vector<segment>& out);

}  // namespace accel::softnic
