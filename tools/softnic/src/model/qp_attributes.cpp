// SPDX-License-Identifier: Apache-2.0
#include "model/qp_attributes.hpp"

#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

struct transition {
    qp_type type;
    qp_state from;
    qp_state to;
    std::uint32_t required;
    std::uint32_t optional;
};

using enum qp_state;
constexpr auto rc = qp_type::reliable_connection;
constexpr auto ud = qp_type::datagram;
constexpr auto dci = qp_type::dynamic_initiator;
constexpr auto dct = qp_type::dynamic_target;

constexpr std::uint32_t rc_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr std::uint32_t ud_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr std::uint32_t rc_live =
    IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER;
constexpr std::uint32_t ud_live = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr std::uint32_t rc_drained = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CUR_STATE |
                                     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
                                     IBV_QP_PATH_MIG_STATE;

constexpr std::array transitions{
    transition{rc, reset, initialised, rc_init, 0},
    transition{rc, initialised, initialised, 0, rc_init},
    transition{rc, initialised, ready_to_receive,
               IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                   IBV_QP_MIN_RNR_TIMER,
               IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    transition{rc, ready_to_receive, ready_to_send,
               IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, rc_live},
    transition{rc, ready_to_send, ready_to_send, 0, rc_live},
    transition{rc, ready_to_send, send_drained, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    transition{rc, send_drained, ready_to_send, 0, rc_live},
    transition{rc, send_drained, send_drained, 0, rc_drained},
    transition{ud, reset, initialised, ud_init, 0},
    transition{ud, initialised, initialised, 0, ud_init},
    transition{ud, initialised, ready_to_receive, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    transition{ud, ready_to_receive, ready_to_send, IBV_QP_SQ_PSN, ud_live},
    transition{ud, ready_to_send, ready_to_send, 0, ud_live},
    transition{ud, ready_to_send, send_drained, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    transition{ud, send_drained, ready_to_send, 0, ud_live},
    transition{ud, send_drained, send_drained, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    transition{ud, send_error, ready_to_send, 0, ud_live},
    // Dynamically connected: the tables of the vendor's driver.
    transition{dci, reset, initialised, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
    transition{dci, initialised, initialised, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
    transition{dci, initialised, ready_to_receive, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
    transition{dci, ready_to_receive, ready_to_send,
               IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
               IBV_QP_MIN_RNR_TIMER},
    transition{dci, ready_to_send, ready_to_send, 0, IBV_QP_MIN_RNR_TIMER},
    transition{dct, reset, initialised, rc_init, 0},
    transition{dct, initialised, ready_to_receive, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
};

/// In microseconds, by code; InfiniBand specification, table of RNR NAK timer values.
constexpr std::array<std::uint32_t, 32> rnr_microseconds{
    655360, 10,   20,   30,   40,    60,    80,    120,   160,   240,   320,   480,    640,    960,    1280,   1920,
    2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};

}  // namespace

std::string_view to_string(qp_state state) {
    constexpr std::array<std::string_view, 7> names{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    const auto index = static_cast<std::size_t>(state);
    return index < names.size() ? names[index] : "?";
}

bool transition_allowed(qp_type type, qp_state from, qp_state to, std::uint32_t mask) {
    constexpr std::uint32_t always = IBV_QP_STATE;
    if (from == reset && to == error) return false;  // as the kernel says, whatever the specification allows
    if (type == dct && (to == reset || to == error)) return false;
    if (to == reset || to == error) return (mask & ~(always | IBV_QP_CUR_STATE)) == 0;
    for (const auto& row : transitions) {
        if (row.type != type || row.from != from || row.to != to) continue;
        const bool complete = (mask & row.required) == row.required;
        return complete && (mask & ~(row.required | row.optional | always)) == 0;
    }
    return false;
}

std::uint64_t rnr_wait_ns(std::uint8_t code) {
    return std::uint64_t{rnr_microseconds[code & 31]} * 1000;
}

std::uint64_t acknowledge_timeout_ns(std::uint8_t code) {
    return (code & 31) == 0 ? 0 : std::uint64_t{4096} << (code & 31);
}

}  // namespace accel::softnic
