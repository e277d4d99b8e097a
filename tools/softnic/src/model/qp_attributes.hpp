// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/packet.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace accel::softnic {

/// Values of ibv_qp_type, but for the vendor's own, and of ibv_qp_state.
enum class qp_type : std::uint8_t { reliable_connection = 2, datagram = 4, dynamic_initiator = 0x80, dynamic_target };
enum class qp_state : std::uint8_t {
    reset,
    initialised,
    ready_to_receive,
    ready_to_send,
    send_drained,
    send_error,
    error,
};

[[nodiscard]] std::string_view to_string(qp_state state);

/// The address of the other end.
struct path {
    std::array<std::uint8_t, 16> gid{};
    std::uint32_t flow_label = 0;
    std::uint16_t dlid = 0;
    std::uint8_t sgid_index = 0;
    std::uint8_t hop_limit = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t service_level = 0;
    std::uint8_t source_path_bits = 0;
    std::uint8_t static_rate = 0;
    bool global = false;
    std::uint8_t port = 1;
};

/// What MODIFY_QP sets and QUERY_QP shows. Encodings are those of verbs.
struct qp_attributes {
    path destination;
    port_address remote;  ///< `destination`, resolved
    std::uint32_t qkey = 0;
    std::uint32_t receive_psn = 0;
    std::uint32_t send_psn = 0;
    std::uint32_t remote_qpn = 0;
    std::uint32_t access = 0;
    std::uint16_t pkey_index = 0;
    std::uint8_t path_mtu = 5;
    std::uint8_t max_rd_atomic = 0;
    std::uint8_t max_dest_rd_atomic = 0;
    std::uint8_t min_rnr_timer = 0;
    std::uint8_t port = 1;
    std::uint8_t timeout = 0;
    std::uint8_t retry_count = 0;
    std::uint8_t rnr_retry = 0;

    [[nodiscard]] std::uint32_t mtu_bytes() const { return 128u << path_mtu; }
};

/// One MODIFY_QP: which attributes (ibv_qp_attr_mask), and their values.
struct qp_modification {
    std::uint32_t mask = 0;
    qp_state next = qp_state::reset;
    qp_state current = qp_state::reset;
    bool notify_drained = false;
    qp_attributes values;
};

/// Is this step allowed, with exactly these attributes? The tables of the InfiniBand specification
/// (11.2.5.2), which also the kernel applies before the adapter sees anything.
[[nodiscard]] bool transition_allowed(qp_type type, qp_state from, qp_state to, std::uint32_t mask);

/// Time to wait for a receiver-not-ready code (5 bits), and for a local acknowledgement timeout (0: for
/// ever).
[[nodiscard]] std::uint64_t rnr_wait_ns(std::uint8_t code);
[[nodiscard]] std::uint64_t acknowledge_timeout_ns(std::uint8_t code);

}  // namespace accel::softnic
