// SPDX-License-Identifier: Apache-2.0
// Completion queues whose elements and record are in umems.
#include "devx/commands.hpp"

#include <bit>
#include <utility>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t cqe_sz_64 = 0;
constexpr std::uint32_t cqe_sz_128 = 1;

field cq_field(field of) {
    return of.at(create_cq::context);
}

/// What the context asks for that can be refused before any memory is looked at.
result check_cq_context(const call& what) {
    const auto get = [&](field of) { return what.in.get32(cq_field(of)); };
    if (get(cqc::cqe_sz) != cqe_sz_64 && get(cqc::cqe_sz) != cqe_sz_128)
        return {status::bad_parameter, reason::bad_attribute};
    if (get(cqc::cqe_comp_en) != 0) return {status::bad_parameter, reason::not_modelled};
    if ((std::uint64_t{1} << get(cqc::log_cq_size)) > std::uint64_t{limits::max_cqe} + 1)
        return {status::limit_exceeded, reason::bad_queue_size};
    if (!has_uar(what.owner, get(cqc::uar_page))) return {status::bad_resource, reason::no_such_uar};
    const std::uint32_t queue = get(cqc::c_eqn);
    const bool event_queue = queue >= first_event_queue && queue < first_event_queue + limits::completion_vectors;
    return event_queue ? result{} : result{status::bad_resource, reason::no_such_index};
}

result place_cq(call& what, completion_queue_options& options) {
    const auto get = [&](field of) { return what.in.get(cq_field(of)); };
    place queue;
    place record;
    const result in_umem =
        find_place(what.owner, what.in.get32(create_cq::umem_id), what.in.get(create_cq::umem_offset),
                   std::uint64_t{options.entries} * options.entry_bytes, queue_alignment, queue);
    if (!in_umem.good()) return in_umem;
    const result in_record = find_place(what.owner, static_cast<std::uint32_t>(get(cqc::dbr_umem_id)),
                                        get(cqc::dbr_addr), record_bytes, record_alignment, record);
    if (!in_record.good()) return in_record;
    options.buffer = queue.at();
    options.doorbell_record = record.at();
    what.made.memory = {queue.memory, record.memory};
    return {};
}

result make_cq(call& what) {
    if (const result refused = check_cq_context(what); !refused.good()) return refused;
    const auto get = [&](field of) { return what.in.get32(cq_field(of)); };
    completion_queue_options options;
    options.entries = std::uint32_t{1} << get(cqc::log_cq_size);
    options.entry_bytes = get(cqc::cqe_sz) == cqe_sz_128 ? 128 : 64;
    options.collapsed = get(cqc::cc) != 0;
    options.ignore_overrun = get(cqc::oi) != 0;
    if (const result refused = place_cq(what, options); !refused.good()) return refused;
    options.subscribers = what.made.subscribers;
    auto queue = what.owner.adapter().create_cq(std::move(options));
    what.out.set(header::object, queue->number());
    what.owner.cqs[what.handle] = std::move(queue);
    what.made.kind = object_kind::completion_queue;
    return {};
}

/// Moderation is accepted, and every event is sent at once. The other kinds of change are not there.
result change_cq(call& what) {
    if (find_cq(what.owner, what.number()) == nullptr) return {status::bad_resource, reason::no_such_completion_queue};
    return what.in.get(header::op_mod) == 0 ? result{} : result{status::bad_parameter, reason::not_modelled};
}

result describe_cq(call& what) {
    constexpr std::uint32_t overflowed = 9;
    const auto queue = find_cq(what.owner, what.number());
    if (queue == nullptr) return {status::bad_resource, reason::no_such_completion_queue};
    const auto set = [&](field of, std::uint64_t value) { what.out.set(of.at(query_cq::context), value); };
    const auto& options = queue->options();
    set(cqc::status, queue->failed() ? overflowed : 0);
    set(cqc::cqe_sz, options.entry_bytes == 128 ? cqe_sz_128 : cqe_sz_64);
    set(cqc::cc, options.collapsed ? 1 : 0);
    set(cqc::oi, options.ignore_overrun ? 1 : 0);
    set(cqc::log_cq_size, static_cast<std::uint64_t>(std::countr_zero(options.entries)));
    set(cqc::consumer_counter, queue->consumed());
    set(cqc::producer_counter, queue->produced());
    return {};
}

constexpr command_row cq_rows[]{
    {opcode::create_cq, command_class::create, "CREATE_CQ", create_cq::in_bytes, header::bytes, make_cq},
    {opcode::modify_cq, command_class::modify, "MODIFY_CQ", modify_cq::in_bytes, header::bytes, change_cq},
    {opcode::query_cq, command_class::query, "QUERY_CQ", header::bytes, query_cq::out_bytes, describe_cq},
};

}  // namespace

std::span<const command_row> cq_commands() {
    return cq_rows;
}

}  // namespace accel::softnic::devx
