// SPDX-License-Identifier: Apache-2.0
// The steps of a queue pair's life, each with the part of the context that counts in it.
#include "devx/commands.hpp"

#include <algorithm>
#include <cstring>

#include <infiniband/verbs.h>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t always_with(int mask) {
    return static_cast<std::uint32_t>(IBV_QP_STATE | mask);
}

/// The context of a queue pair that a step sends.
class sent {
  public:
    explicit sent(const call& what) : in_(what.in) {}
    template <class T>
    [[nodiscard]] T as(field of) const {
        return static_cast<T>(in_.get(of.at(modify_qp::context)));
    }
    [[nodiscard]] std::uint8_t small(field of) const { return as<std::uint8_t>(of); }
    template <class T>
    [[nodiscard]] T path(field of) const {
        return as<T>(of.at(qpc::primary_address_path));
    }
    [[nodiscard]] std::span<const std::byte> gid() const {
        return in_.bytes(ads::rgid_rip.at(qpc::primary_address_path).at(modify_qp::context));
    }

  private:
    const mailbox_in& in_;
};

std::uint32_t access_of(const sent& get) {
    return (get.small(qpc::rwe) != 0 ? access::remote_write : 0) |
           (get.small(qpc::rre) != 0 ? access::remote_read : 0) |
           (get.small(qpc::rae) != 0 ? access::remote_atomic : 0);
}

/// opt_param_mask says for each right whether the step sets it.
std::uint32_t merge_access(const sent& get, std::uint32_t chosen, std::uint32_t before) {
    const std::uint32_t taken = ((chosen & opt_param::rwe) != 0 ? access::remote_write : 0) |
                                ((chosen & opt_param::rre) != 0 ? access::remote_read : 0) |
                                ((chosen & opt_param::rae) != 0 ? access::remote_atomic : 0);
    return (before & ~taken) | (access_of(get) & taken);
}

/// A RoCE path always has a GRH, whatever the bit says.
path path_of(const sent& get, bool ethernet) {
    path to;
    const auto gid = get.gid();
    std::memcpy(to.gid.data(), gid.data(), std::min(gid.size(), to.gid.size()));
    to.flow_label = get.path<std::uint32_t>(ads::flow_label);
    to.dlid = get.path<std::uint16_t>(ads::rlid);
    to.sgid_index = get.path<std::uint8_t>(ads::src_addr_index);
    to.hop_limit = get.path<std::uint8_t>(ads::hop_limit);
    to.traffic_class = get.path<std::uint8_t>(ads::tclass);
    to.service_level = get.path<std::uint8_t>(ads::sl);
    to.source_path_bits = get.path<std::uint8_t>(ads::mlid);
    to.static_rate = get.path<std::uint8_t>(ads::stat_rate);
    to.global = ethernet || get.path<std::uint8_t>(ads::grh) != 0;
    return to;
}

/// Values that a step may set beyond its own.
void add_options(const call& what, const queue_pair& qp, qp_modification& change) {
    const sent get(what);
    const std::uint32_t chosen = what.in.get32(modify_qp::opt_param_mask);
    if ((chosen & (opt_param::rwe | opt_param::rre | opt_param::rae)) != 0) {
        change.mask |= IBV_QP_ACCESS_FLAGS;
        change.values.access = merge_access(get, chosen, qp.attributes.access);
    }
    if ((chosen & opt_param::rnr_timeout) != 0) {
        change.mask |= IBV_QP_MIN_RNR_TIMER;
        change.values.min_rnr_timer = get.small(qpc::min_rnr_nak);
    }
}

/// What only the receiving half has: an initiator's context may hold it, and it counts for nothing.
constexpr std::uint32_t receiving_half = IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

result apply_step(call& what, queue_pair& qp, qp_modification& change) {
    if (qp.is_initiator()) change.mask &= ~receiving_half;
    const int problem = what.owner.adapter().modify_qp(qp, change);
    return problem == 0 ? result{} : result{status::bad_parameter, reason::bad_attribute};
}

/// The queue pair, if it is one that can take this step: of RC, or an initiator.
result find_in_state(const call& what, qp_state from, queue_pair*& qp) {
    qp = what.find_queue_pair();
    if (qp == nullptr) return {status::bad_resource, reason::no_such_index};
    if (qp->is_datagram()) return {status::bad_parameter, reason::not_modelled};
    return qp->state == from ? result{} : result{status::bad_qp_state, reason::wrong_state};
}

result to_init(call& what) {
    queue_pair* qp = nullptr;
    if (const result refused = find_in_state(what, qp_state::reset, qp); !refused.good()) return refused;
    const sent get(what);
    qp_modification change;
    change.next = qp_state::initialised;
    change.mask = always_with(IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    change.values.access = access_of(get);
    change.values.pkey_index = get.path<std::uint16_t>(ads::pkey_index);
    change.values.port = get.path<std::uint8_t>(ads::vhca_port_num);
    return apply_step(what, *qp, change);
}

result stay_in_init(call& what) {
    queue_pair* qp = nullptr;
    if (const result refused = find_in_state(what, qp_state::initialised, qp); !refused.good()) return refused;
    const sent get(what);
    const std::uint32_t chosen = what.in.get32(modify_qp::opt_param_mask);
    qp_modification change;
    change.next = qp_state::initialised;
    change.mask = IBV_QP_STATE;
    add_options(what, *qp, change);
    change.mask &= ~static_cast<std::uint32_t>(IBV_QP_MIN_RNR_TIMER);
    if ((chosen & opt_param::pkey_index) != 0) change.mask |= IBV_QP_PKEY_INDEX;
    if ((chosen & opt_param::primary_port) != 0) change.mask |= IBV_QP_PORT;
    change.values.pkey_index = get.path<std::uint16_t>(ads::pkey_index);
    change.values.port = get.path<std::uint8_t>(ads::vhca_port_num);
    return apply_step(what, *qp, change);
}

result to_receive(call& what) {
    queue_pair* qp = nullptr;
    if (const result refused = find_in_state(what, qp_state::initialised, qp); !refused.good()) return refused;
    const sent get(what);
    const port* from = what.owner.own_device().find_port(qp->attributes.port);
    qp_modification change;
    change.next = qp_state::ready_to_receive;
    change.mask = always_with(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    auto& values = change.values;
    values.min_rnr_timer = get.small(qpc::min_rnr_nak);
    values.destination = path_of(get, from != nullptr && from->link == link_layer::ethernet);
    values.destination.port = qp->attributes.port;
    values.path_mtu = get.small(qpc::mtu);
    values.remote_qpn = get.as<std::uint32_t>(qpc::remote_qpn);
    values.receive_psn = get.as<std::uint32_t>(qpc::next_rcv_psn);
    values.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << get.small(qpc::log_rra_max));
    add_options(what, *qp, change);
    return apply_step(what, *qp, change);
}

result to_send(call& what) {
    queue_pair* qp = nullptr;
    if (const result refused = find_in_state(what, qp_state::ready_to_receive, qp); !refused.good()) return refused;
    const sent get(what);
    qp_modification change;
    change.next = qp_state::ready_to_send;
    change.mask =
        always_with(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    auto& values = change.values;
    values.timeout = get.path<std::uint8_t>(ads::ack_timeout);
    values.retry_count = get.small(qpc::retry_count);
    values.rnr_retry = get.small(qpc::rnr_retry);
    values.send_psn = get.as<std::uint32_t>(qpc::next_send_psn);
    values.max_rd_atomic = static_cast<std::uint8_t>(1u << get.small(qpc::log_sra_max));
    add_options(what, *qp, change);
    return apply_step(what, *qp, change);
}

result stay_in_send(call& what) {
    queue_pair* qp = nullptr;
    if (const result refused = find_in_state(what, qp_state::ready_to_send, qp); !refused.good()) return refused;
    qp_modification change;
    change.next = qp_state::ready_to_send;
    change.mask = IBV_QP_STATE;
    add_options(what, *qp, change);
    return apply_step(what, *qp, change);
}

result leave_to(call& what, qp_state next) {
    queue_pair* qp = what.find_queue_pair();
    if (qp == nullptr) return {status::bad_resource, reason::no_such_index};
    qp_modification change;
    change.next = next;
    change.mask = IBV_QP_STATE;
    const int problem = what.owner.adapter().modify_qp(*qp, change);
    return problem == 0 ? result{} : result{status::bad_qp_state, reason::wrong_state};
}

result to_error(call& what) {
    return leave_to(what, qp_state::error);
}
result to_reset(call& what) {
    return leave_to(what, qp_state::reset);
}

constexpr command_row step(opcode code, std::string_view name, command_handler run,
                           std::uint16_t in_bytes = modify_qp::in_bytes) {
    return {code, command_class::modify, name, in_bytes, header::bytes, run};
}

constexpr command_row state_rows[]{
    step(opcode::rst2init_qp, "RST2INIT_QP", to_init),
    step(opcode::init2init_qp, "INIT2INIT_QP", stay_in_init),
    step(opcode::init2rtr_qp, "INIT2RTR_QP", to_receive),
    step(opcode::rtr2rts_qp, "RTR2RTS_QP", to_send),
    step(opcode::rts2rts_qp, "RTS2RTS_QP", stay_in_send),
    step(opcode::qp_2err, "2ERR_QP", to_error, header::bytes),
    step(opcode::qp_2rst, "2RST_QP", to_reset, header::bytes),
};

}  // namespace

std::span<const command_row> qp_state_commands() {
    return state_rows;
}

}  // namespace accel::softnic::devx
