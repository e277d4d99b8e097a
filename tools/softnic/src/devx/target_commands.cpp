// SPDX-License-Identifier: Apache-2.0
// Dynamically connected targets. A command makes one that takes connections at once: there are no steps.
#include "devx/commands.hpp"

#include <utility>

#include <infiniband/verbs.h>

namespace accel::softnic::devx {
namespace {

/// The context of a target that a creation sends.
class wanted_target {
  public:
    explicit wanted_target(const call& what) : in_(what.in) {}
    [[nodiscard]] std::uint32_t operator()(field of) const { return in_.get32(of.at(create_dct::context)); }
    [[nodiscard]] std::uint64_t wide(field of) const { return in_.get(of.at(create_dct::context)); }
    template <class T>
    [[nodiscard]] T as(field of) const {
        return static_cast<T>((*this)(of));
    }

  private:
    const mailbox_in& in_;
};

result find_target_parts(const call& what, queue_pair_options& options) {
    const wanted_target get(what);
    if (get(dctc::offload_type) != 0) return {status::bad_parameter, reason::not_modelled};
    if (!what.owner.pds.contains(get(dctc::pd))) return {status::bad_resource, reason::no_such_domain};
    options.type = qp_type::dynamic_target;
    options.pd = get(dctc::pd);
    options.user_index = get(dctc::user_index);
    options.access_key = get.wide(dctc::dc_access_key);
    options.receive_cq = find_cq(what.owner, get(dctc::cqn));
    if (!options.receive_cq) return {status::bad_resource, reason::no_such_completion_queue};
    options.shared_receives = find_srq(what.owner, get(dctc::srqn_xrqn));
    return options.shared_receives ? result{} : result{status::bad_resource, reason::no_such_receive_queue};
}

std::uint32_t target_access(const wanted_target& get) {
    return (get(dctc::rwe) != 0 ? access::remote_write : 0) | (get(dctc::rre) != 0 ? access::remote_read : 0) |
           (get(dctc::rae) != 0 ? access::remote_atomic : 0);
}

qp_modification to_initialised(const wanted_target& get) {
    qp_modification change;
    change.next = qp_state::initialised;
    change.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    change.values.access = target_access(get);
    change.values.pkey_index = get.as<std::uint16_t>(dctc::pkey_index);
    change.values.port = get.as<std::uint8_t>(dctc::port);
    return change;
}

qp_modification to_ready(const wanted_target& get, bool ethernet) {
    qp_modification change;
    change.next = qp_state::ready_to_receive;
    change.mask = IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;
    auto& values = change.values;
    values.min_rnr_timer = get.as<std::uint8_t>(dctc::min_rnr_nak);
    values.path_mtu = get.as<std::uint8_t>(dctc::mtu);
    values.destination.global = ethernet;
    values.destination.sgid_index = get.as<std::uint8_t>(dctc::my_addr_index);
    values.destination.hop_limit = get.as<std::uint8_t>(dctc::hop_limit);
    values.destination.traffic_class = get.as<std::uint8_t>(dctc::tclass);
    values.destination.flow_label = get(dctc::flow_label);
    return change;
}

/// Through the same states, with the same checks, as a target of verbs.
bool bring_up(const call& what, queue_pair& target) {
    const wanted_target get(what);
    const port* at = what.owner.own_device().find_port(get(dctc::port));
    if (at == nullptr) return false;
    nic& adapter = what.owner.adapter();
    return adapter.modify_qp(target, to_initialised(get)) == 0 &&
           adapter.modify_qp(target, to_ready(get, at->link == link_layer::ethernet)) == 0;
}

result make_target(call& what) {
    queue_pair_options options;
    if (const result refused = find_target_parts(what, options); !refused.good()) return refused;
    options.subscribers = what.made.subscribers;
    nic& adapter = what.owner.adapter();
    queue_pair* made = adapter.create_qp(what.owner.device_index(), std::move(options));
    if (made == nullptr) return {status::no_resources, reason::nothing_left};
    if (!bring_up(what, *made)) {
        adapter.destroy_qp(*made);
        return {status::bad_parameter, reason::bad_attribute};
    }
    what.out.set(header::object, made->number);
    what.owner.qps[what.handle] = made->number;
    what.made.kind = object_kind::target;
    return {};
}

queue_pair* find_target(const call& what) {
    queue_pair* found = what.find_queue_pair();
    return found != nullptr && found->is_target() ? found : nullptr;
}

/// The next connection with a wrong key is an event. Later ones are, once it is armed again.
result arm_target(call& what) {
    queue_pair* target = find_target(what);
    if (target == nullptr) return {status::bad_resource, reason::no_such_index};
    target->dynamic.tells_violation = true;
    return {};
}

result describe_target(call& what) {
    const queue_pair* target = find_target(what);
    if (target == nullptr) return {status::bad_resource, reason::no_such_index};
    const auto set = [&](field of, std::uint64_t value) { what.out.set(of.at(query_dct::context), value); };
    const auto has = [&](std::uint32_t right) { return std::uint64_t{(target->attributes.access & right) != 0}; };
    const auto& options = target->options;
    const auto& path = target->attributes.destination;
    set(dctc::user_index, options.user_index);
    set(dctc::cqn, options.receive_cq->number());
    set(dctc::srqn_xrqn, options.shared_receives->who().number);
    set(dctc::pd, options.pd);
    set(dctc::dc_access_key, options.access_key);
    set(dctc::rre, has(access::remote_read));
    set(dctc::rwe, has(access::remote_write));
    set(dctc::rae, has(access::remote_atomic));
    set(dctc::min_rnr_nak, target->attributes.min_rnr_timer);
    set(dctc::mtu, target->attributes.path_mtu);
    set(dctc::port, target->attributes.port);
    set(dctc::pkey_index, target->attributes.pkey_index);
    set(dctc::my_addr_index, path.sgid_index);
    set(dctc::hop_limit, path.hop_limit);
    set(dctc::tclass, path.traffic_class);
    set(dctc::flow_label, path.flow_label);
    set(dctc::dc_access_key_violation_count, target->dynamic.violations);
    return {};
}

constexpr command_row target_rows[]{
    {opcode::create_dct, command_class::create, "CREATE_DCT", create_dct::in_bytes, header::bytes, make_target},
    {opcode::query_dct, command_class::query, "QUERY_DCT", header::bytes, query_dct::out_bytes, describe_target},
    {opcode::arm_dct_for_key_violation, command_class::modify, "ARM_DCT_FOR_KEY_VIOLATION", header::bytes,
     header::bytes, arm_target},
};

}  // namespace

std::span<const command_row> target_commands() {
    return target_rows;
}

}  // namespace accel::softnic::devx
