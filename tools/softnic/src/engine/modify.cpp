// SPDX-License-Identifier: Apache-2.0
// MODIFY_QP: what may change, to what, and what the change does.
#include "engine/nic.hpp"
#include "transport/completions.hpp"
#include "transport/dynamic.hpp"
#include "transport/memory.hpp"
#include "transport/requester.hpp"

#include <cerrno>

#include <infiniband/verbs.h>

namespace accel::softnic {

int nic::check_path(const queue_pair& qp, const path& to, std::uint8_t port_number) {
    port* mine = state.devices[static_cast<std::size_t>(qp.device)].find_port(port_number);
    if (mine == nullptr) return EINVAL;
    if (mine->link == link_layer::ethernet && !to.global) return EINVAL;
    if (to.global && to.sgid_index >= mine->gids.size()) return EINVAL;
    return 0;
}

int nic::check(const queue_pair& qp, const qp_modification& change) {
    const auto& values = change.values;
    const auto given = [&](std::uint32_t bit) { return (change.mask & bit) != 0; };
    const qp_state next = given(IBV_QP_STATE) ? change.next : qp.state;
    if (given(IBV_QP_CUR_STATE) && change.current != qp.state) return EINVAL;
    if (!transition_allowed(qp.options.type, qp.state, next, change.mask)) return EINVAL;
    auto& own = state.devices[static_cast<std::size_t>(qp.device)];
    if (given(IBV_QP_PORT) && own.find_port(values.port) == nullptr) return EINVAL;
    if (given(IBV_QP_PKEY_INDEX) && values.pkey_index >= pkey_table_length) return EINVAL;
    if (given(IBV_QP_PATH_MTU) && (values.path_mtu < 1 || values.path_mtu > limits::max_mtu_code)) return EINVAL;
    if (given(IBV_QP_MAX_QP_RD_ATOMIC) && values.max_rd_atomic > limits::max_rd_atomic) return EINVAL;
    if (given(IBV_QP_MAX_DEST_RD_ATOMIC) && values.max_dest_rd_atomic > limits::max_rd_atomic) return EINVAL;
    if (given(IBV_QP_RETRY_CNT) && values.retry_count > 7) return EINVAL;
    if (given(IBV_QP_RNR_RETRY) && values.rnr_retry > 7) return EINVAL;
    if (given(IBV_QP_TIMEOUT) && values.timeout > 31) return EINVAL;
    if (given(IBV_QP_MIN_RNR_TIMER) && values.min_rnr_timer > 31) return EINVAL;
    if (given(IBV_QP_AV)) return check_path(qp, values.destination, qp.attributes.port);
    return 0;
}

void nic::apply_values(queue_pair& qp, const qp_modification& change) {
    auto& mine = qp.attributes;
    const auto& values = change.values;
    const auto given = [&](std::uint32_t bit) { return (change.mask & bit) != 0; };
    if (given(IBV_QP_PORT)) mine.port = values.port;
    if (given(IBV_QP_PKEY_INDEX)) mine.pkey_index = values.pkey_index;
    if (given(IBV_QP_ACCESS_FLAGS)) mine.access = values.access;
    if (given(IBV_QP_QKEY)) mine.qkey = values.qkey;
    if (given(IBV_QP_PATH_MTU)) mine.path_mtu = values.path_mtu;
    if (given(IBV_QP_DEST_QPN)) mine.remote_qpn = values.remote_qpn & 0xffffff;
    if (given(IBV_QP_TIMEOUT)) mine.timeout = values.timeout;
    if (given(IBV_QP_RETRY_CNT)) mine.retry_count = values.retry_count;
    if (given(IBV_QP_RNR_RETRY)) mine.rnr_retry = values.rnr_retry;
    if (given(IBV_QP_MIN_RNR_TIMER)) mine.min_rnr_timer = values.min_rnr_timer;
    if (given(IBV_QP_MAX_QP_RD_ATOMIC)) mine.max_rd_atomic = values.max_rd_atomic;
    if (given(IBV_QP_MAX_DEST_RD_ATOMIC)) mine.max_dest_rd_atomic = values.max_dest_rd_atomic;
    if (given(IBV_QP_RQ_PSN)) qp.responder.expected_psn = mine.receive_psn = values.receive_psn & psn_mask;
    if (given(IBV_QP_SQ_PSN)) {
        mine.send_psn = values.send_psn & psn_mask;
        qp.requester.next_psn = qp.requester.unacknowledged = qp.requester.sent_end = mine.send_psn;
    }
    if (given(IBV_QP_AV)) {
        mine.destination = values.destination;
        const auto& to = mine.destination;
        const auto& own = *state.devices[static_cast<std::size_t>(qp.device)].find_port(mine.port);
        const auto found =
            own.link == link_layer::infiniband && to.dlid != 0 ? state.find_lid(to.dlid) : state.find_gid(to.gid);
        // Nobody there: as with a real switch, packets get lost and the retries run out.
        mine.remote = found.value_or(port_address{static_cast<std::uint8_t>(max_devices), 0});
    }
}

void nic::reset(queue_pair& qp) {
    memory::drain(state, qp);
    state.unschedule(qp);
    dynamic::forget_connections(state, qp);
    qp.dynamic = dynamic_state{};
    qp.scheduled = false;
    qp.requester = requester_state{};
    qp.responder = responder_state{};
    qp.receives.reset();
    qp.attributes = qp_attributes{};
    qp.draining = false;
    qp.last_wqe_told = false;
}

void nic::change_state(queue_pair& qp, const qp_modification& change) {
    const qp_state before = qp.state;
    if (change.next == qp_state::error) return completions::enter_error(state, qp);
    if (change.next == qp_state::reset) reset(qp);
    state.say(qp, "state", "{} -> {}", to_string(before), to_string(change.next));
    qp.state = change.next;
    if (change.next == qp_state::send_drained && before != qp_state::send_drained) {
        qp.draining = change.notify_drained;
        requester::check_drained(state, qp);
    }
}

int nic::modify_qp(queue_pair& qp, const qp_modification& change) {
    if (const int problem = check(qp, change); problem != 0) return problem;
    apply_values(qp, change);
    if ((change.mask & IBV_QP_STATE) != 0) change_state(qp, change);
    return 0;
}

}  // namespace accel::softnic
