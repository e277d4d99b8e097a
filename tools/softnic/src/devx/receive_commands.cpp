// SPDX-License-Identifier: Apache-2.0
// Shared receive queues ("receive memory pools") whose elements and record are in umems.
#include "devx/commands.hpp"

#include <bit>
#include <utility>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t queue_linked = 0;
constexpr std::uint32_t queue_cyclic = 1;
constexpr std::uint32_t state_ready = 1;
constexpr std::uint32_t smallest_element_shift = 5;  ///< a link segment and one of data
constexpr std::uint32_t largest_element_shift = 10;
constexpr std::uint32_t segment_shift = 4;
constexpr std::uint64_t counter_bytes = 4;

/// A field of the work queue inside the context.
field queue_field(field of) {
    return of.at(rmpc::queue).at(create_rmp::context);
}

result check_receive_context(const call& what) {
    const auto get = [&](field of) { return what.in.get32(queue_field(of)); };
    const bool known = get(wq::wq_type) == queue_linked || get(wq::wq_type) == queue_cyclic;
    const bool plain = what.in.get32(rmpc::basic_cyclic_rcv_wqe.at(create_rmp::context)) != 0;
    if (!known || plain || get(wq::wq_signature) != 0) return {status::bad_parameter, reason::not_modelled};
    if (what.in.get32(rmpc::state.at(create_rmp::context)) != state_ready)
        return {status::bad_parameter, reason::bad_attribute};
    if (!what.owner.pds.contains(get(wq::pd))) return {status::bad_resource, reason::no_such_domain};
    const std::uint32_t shift = get(wq::log_wq_stride);
    const bool fits = shift >= smallest_element_shift && shift <= largest_element_shift &&
                      (std::uint64_t{1} << get(wq::log_wq_sz)) <= limits::max_srq_work_requests + 1;
    return fits ? result{} : result{status::limit_exceeded, reason::bad_queue_size};
}

result place_receives(call& what, receive_queue_options& ring) {
    const auto get = [&](field of) { return what.in.get32(queue_field(of)); };
    ring.entries = std::uint32_t{1} << get(wq::log_wq_sz);
    ring.stride_shift = get(wq::log_wq_stride);
    ring.cyclic = get(wq::wq_type) == queue_cyclic;
    place elements;
    place record;
    const result in_umem = find_place(what.owner, get(wq::wq_umem_id), what.in.get(queue_field(wq::wq_umem_offset)),
                                      std::uint64_t{ring.entries} << ring.stride_shift, queue_alignment, elements);
    if (!in_umem.good()) return in_umem;
    const result in_record = find_place(what.owner, get(wq::dbr_umem_id), what.in.get(queue_field(wq::dbr_addr)),
                                        counter_bytes, counter_bytes, record);
    if (!in_record.good()) return in_record;
    ring.buffer = elements.at();
    ring.doorbell_record = record.at();
    what.made.memory = {elements.memory, record.memory};
    return {};
}

/// Its number is its handle, as that of a shared receive queue of verbs.
result make_receive_queue(call& what) {
    if (const result refused = check_receive_context(what); !refused.good()) return refused;
    receive_queue_options ring;
    if (const result refused = place_receives(what, ring); !refused.good()) return refused;
    shared_receive_queue::identity who;
    who.number = what.handle;
    who.pd = what.in.get32(queue_field(wq::pd));
    who.max_segments = (1u << (ring.stride_shift - segment_shift)) - 1;
    who.subscribers = what.made.subscribers;
    what.owner.srqs[what.handle] = std::make_shared<shared_receive_queue>(std::move(who), std::move(ring));
    what.out.set(header::object, what.handle);
    what.made.kind = object_kind::receive_queue;
    return {};
}

/// The low watermark is the limit whose event is sent once.
result change_receive_queue(call& what) {
    const auto queue = find_srq(what.owner, what.number());
    if (queue == nullptr) return {status::bad_resource, reason::no_such_receive_queue};
    if (what.in.get(modify_rmp::bitmask_lwm) == 0) return {};
    const std::uint32_t limit = what.in.get32(queue_field(wq::lwm));
    if (limit >= queue->options().entries) return {status::bad_parameter, reason::bad_attribute};
    queue->arm_limit(limit);
    return {};
}

result describe_receive_queue(call& what) {
    const auto queue = find_srq(what.owner, what.number());
    if (queue == nullptr) return {status::bad_resource, reason::no_such_receive_queue};
    const auto set = [&](field of, std::uint64_t value) {
        what.out.set(of.at(rmpc::queue).at(query_rmp::context), value);
    };
    const auto& ring = queue->options();
    what.out.set(rmpc::state.at(query_rmp::context), state_ready);
    set(wq::wq_type, ring.cyclic ? queue_cyclic : queue_linked);
    set(wq::lwm, queue->limit());
    set(wq::pd, queue->who().pd);
    set(wq::log_wq_stride, ring.stride_shift);
    set(wq::log_wq_sz, static_cast<std::uint64_t>(std::countr_zero(ring.entries)));
    return {};
}

constexpr command_row receive_rows[]{
    {opcode::create_rmp, command_class::create, "CREATE_RMP", create_rmp::in_bytes, header::bytes, make_receive_queue},
    {opcode::modify_rmp, command_class::modify, "MODIFY_RMP", modify_rmp::in_bytes, header::bytes,
     change_receive_queue},
    {opcode::query_rmp, command_class::query, "QUERY_RMP", header::bytes, query_rmp::out_bytes, describe_receive_queue},
};

}  // namespace

std::span<const command_row> receive_commands() {
    return receive_rows;
}

}  // namespace accel::softnic::devx
