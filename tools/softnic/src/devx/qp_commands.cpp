// SPDX-License-Identifier: Apache-2.0
// Queue pairs of RC, and initiators of dynamically connected transport, whose queues and record are in umems: creation,
// and what they are now.
#include "devx/commands.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t service_rc = 0;
constexpr std::uint32_t service_ud = 2;
constexpr std::uint32_t service_dci = 5;
constexpr std::uint32_t rq_regular = 0;
constexpr std::uint32_t rq_shared = 1;
constexpr std::uint32_t rq_none = 3;
constexpr std::uint32_t smallest_stride_shift = 4;
constexpr std::uint32_t largest_stride_shift = 10;

/// The context of a queue pair that a creation sends.
class wanted {
  public:
    explicit wanted(const call& what) : in_(what.in) {}
    [[nodiscard]] std::uint32_t operator()(field of) const { return in_.get32(of.at(create_qp::context)); }
    [[nodiscard]] std::uint64_t wide(field of) const { return in_.get(of.at(create_qp::context)); }

  private:
    const mailbox_in& in_;
};

result check_qp_context(const call& what) {
    const wanted get(what);
    const std::uint32_t receives = get(qpc::rq_type);
    const bool initiator = get(qpc::st) == service_dci;
    const bool known = receives == rq_regular || receives == rq_shared || receives == rq_none;
    const bool complete = get(qpc::st) == service_rc || (initiator && get(qpc::no_sq) == 0);
    if (!complete || !known || get(qpc::send_dbr_mode) != 0) return {status::bad_parameter, reason::not_modelled};
    if (!what.owner.pds.contains(get(qpc::pd))) return {status::bad_resource, reason::no_such_domain};
    if (!has_uar(what.owner, get(qpc::uar_page))) return {status::bad_resource, reason::no_such_uar};
    if (get(qpc::log_rq_stride) + smallest_stride_shift > largest_stride_shift)
        return {status::limit_exceeded, reason::bad_queue_size};
    return {};
}

/// A half without a queue needs no completion queue. An initiator receives nothing, whatever its context says.
result find_qp_queues(const call& what, queue_pair_options& options) {
    const wanted get(what);
    options.send_cq = find_cq(what.owner, get(qpc::cqn_snd));
    options.receive_cq = find_cq(what.owner, get(qpc::cqn_rcv));
    if (options.type == qp_type::dynamic_initiator)
        return options.send_cq ? result{} : result{status::bad_resource, reason::no_such_completion_queue};
    const bool receives = get(qpc::rq_type) != rq_none;
    if ((get(qpc::no_sq) == 0 && !options.send_cq) || (receives && !options.receive_cq))
        return {status::bad_resource, reason::no_such_completion_queue};
    if (get(qpc::rq_type) != rq_shared) return {};
    options.shared_receives = find_srq(what.owner, get(qpc::srqn_rmpn_xrqn));
    return options.shared_receives ? result{} : result{status::bad_resource, reason::no_such_receive_queue};
}

/// The receive queue comes first, the send queue behind it.
result place_qp_queues(call& what, queue_pair_options& options) {
    const wanted get(what);
    auto& receives = options.receives;
    const bool initiator = options.type == qp_type::dynamic_initiator;
    if (get(qpc::rq_type) == rq_regular && !initiator) receives.entries = std::uint32_t{1} << get(qpc::log_rq_size);
    receives.stride_shift = get(qpc::log_rq_stride) + smallest_stride_shift;
    if (get(qpc::no_sq) == 0) options.send_wqebbs = std::uint32_t{1} << get(qpc::log_sq_size);
    const std::uint64_t receive_bytes = std::uint64_t{receives.entries} << receives.stride_shift;
    const std::uint64_t send_bytes = std::uint64_t{options.send_wqebbs} * wqebb_bytes;
    place queues;
    place record;
    const result in_umem =
        find_place(what.owner, what.in.get32(create_qp::wq_umem_id), what.in.get(create_qp::wq_umem_offset),
                   receive_bytes + send_bytes, queue_alignment, queues);
    if (!in_umem.good()) return in_umem;
    const result in_record =
        find_place(what.owner, get(qpc::dbr_umem_id), get.wide(qpc::dbr_addr), record_bytes, record_alignment, record);
    if (!in_record.good()) return in_record;
    receives.buffer = queues.at();
    options.send_buffer = queues.at(receive_bytes);
    receives.doorbell_record = options.doorbell_record = record.at();
    what.made.memory = {queues.memory, record.memory};
    return {};
}

result make_qp(call& what) {
    if (const result refused = check_qp_context(what); !refused.good()) return refused;
    const wanted get(what);
    queue_pair_options options;
    if (get(qpc::st) == service_dci) options.type = qp_type::dynamic_initiator;
    options.pd = get(qpc::pd);
    options.subscribers = what.made.subscribers;
    options.user_index = get(qpc::user_index);
    options.uar_page = get(qpc::uar_page);
    if (const result refused = find_qp_queues(what, options); !refused.good()) return refused;
    if (const result refused = place_qp_queues(what, options); !refused.good()) return refused;
    const queue_pair* made = what.owner.adapter().create_qp(what.owner.device_index(), std::move(options));
    if (made == nullptr) return {status::no_resources, reason::nothing_left};
    what.out.set(header::object, made->number);
    what.owner.qps[what.handle] = made->number;
    what.made.kind = object_kind::queue_pair;
    return {};
}

// ---- what a queue pair is now

std::uint32_t state_code(qp_state state) {
    constexpr std::uint32_t send_error = 4;
    constexpr std::uint32_t send_drained = 5;
    if (state == qp_state::send_error) return send_error;
    if (state == qp_state::send_drained) return send_drained;
    return static_cast<std::uint32_t>(state);
}

/// The context of a queue pair in an answer.
class described {
  public:
    explicit described(call& what) : out_(what.out) {}
    void set(field of, std::uint64_t value) { out_.set(of.at(query_qp::context), value); }
    void path(field of, std::uint64_t value) { set(of.at(qpc::primary_address_path), value); }
    void gid(std::span<const std::byte> bytes) {
        out_.set_bytes(ads::rgid_rip.at(qpc::primary_address_path).at(query_qp::context), bytes);
    }

  private:
    mailbox_out& out_;
};

std::uint32_t log2_or_0(std::uint32_t value) {
    return value == 0 ? 0 : static_cast<std::uint32_t>(std::bit_width(value) - 1);
}

std::uint32_t number_of(const std::shared_ptr<completion_queue>& queue) {
    return queue ? queue->number() : 0;
}

void describe_queues(described& to, const queue_pair_options& options) {
    to.set(qpc::pd, options.pd);
    to.set(qpc::uar_page, options.uar_page);
    to.set(qpc::user_index, options.user_index);
    to.set(qpc::no_sq, options.send_wqebbs == 0 ? 1 : 0);
    to.set(qpc::log_sq_size, log2_or_0(options.send_wqebbs));
    to.set(qpc::log_rq_size, log2_or_0(options.receives.entries));
    const std::uint32_t shift = std::max(options.receives.stride_shift, smallest_stride_shift);
    to.set(qpc::log_rq_stride, shift - smallest_stride_shift);
    to.set(qpc::cqn_snd, number_of(options.send_cq));
    to.set(qpc::cqn_rcv, number_of(options.receive_cq));
    to.set(qpc::rq_type, options.shared_receives ? rq_shared : (options.receives.entries == 0 ? rq_none : rq_regular));
    if (options.shared_receives) to.set(qpc::srqn_rmpn_xrqn, options.shared_receives->who().number);
}

void describe_path(described& to, const qp_attributes& from) {
    const auto& path = from.destination;
    to.path(ads::pkey_index, from.pkey_index);
    to.path(ads::vhca_port_num, from.port);
    to.path(ads::ack_timeout, from.timeout);
    to.path(ads::grh, path.global ? 1 : 0);
    to.path(ads::mlid, path.source_path_bits);
    to.path(ads::rlid, path.dlid);
    to.path(ads::src_addr_index, path.sgid_index);
    to.path(ads::stat_rate, path.static_rate);
    to.path(ads::hop_limit, path.hop_limit);
    to.path(ads::tclass, path.traffic_class);
    to.path(ads::flow_label, path.flow_label);
    to.path(ads::sl, path.service_level);
    to.gid(std::as_bytes(std::span(path.gid)));
}

void describe_connection(described& to, const queue_pair& qp) {
    const auto& from = qp.attributes;
    to.set(qpc::mtu, from.path_mtu);
    to.set(qpc::log_msg_max, log2_or_0(max_message_bytes));
    to.set(qpc::remote_qpn, from.remote_qpn);
    to.set(qpc::log_sra_max, log2_or_0(from.max_rd_atomic));
    to.set(qpc::log_rra_max, log2_or_0(from.max_dest_rd_atomic));
    to.set(qpc::retry_count, from.retry_count);
    to.set(qpc::rnr_retry, from.rnr_retry);
    to.set(qpc::min_rnr_nak, from.min_rnr_timer);
    to.set(qpc::rre, (from.access & access::remote_read) != 0 ? 1 : 0);
    to.set(qpc::rwe, (from.access & access::remote_write) != 0 ? 1 : 0);
    to.set(qpc::rae, (from.access & access::remote_atomic) != 0 ? 1 : 0);
    to.set(qpc::next_send_psn, qp.requester.next_psn);
    to.set(qpc::last_acked_psn, qp.requester.unacknowledged);
    to.set(qpc::next_rcv_psn, qp.responder.expected_psn);
    to.set(qpc::hw_sq_wqebb_counter, qp.requester.consumed);
    to.set(qpc::sw_sq_wqebb_counter, qp.requester.produced);
}

std::uint32_t service_of(const queue_pair& qp) {
    if (qp.is_initiator()) return service_dci;
    return qp.is_datagram() ? service_ud : service_rc;
}

result describe_qp(call& what) {
    constexpr std::uint32_t migrated = 3;
    const queue_pair* qp = what.find_queue_pair();
    if (qp == nullptr) return {status::bad_resource, reason::no_such_index};
    described to(what);
    to.set(qpc::state, state_code(qp->state));
    to.set(qpc::st, service_of(*qp));
    to.set(qpc::pm_state, migrated);
    describe_queues(to, qp->options);
    describe_path(to, qp->attributes);
    describe_connection(to, *qp);
    return {};
}

constexpr command_row qp_rows[]{
    {opcode::create_qp, command_class::create, "CREATE_QP", create_qp::in_bytes, header::bytes, make_qp},
    {opcode::query_qp, command_class::query, "QUERY_QP", header::bytes, query_qp::out_bytes, describe_qp},
};

}  // namespace

std::span<const command_row> qp_commands() {
    return qp_rows;
}

}  // namespace accel::softnic::devx
