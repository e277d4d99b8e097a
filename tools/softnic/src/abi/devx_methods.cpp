// SPDX-License-Identifier: Apache-2.0
// DevX: commands of the program to the firmware, the objects that they make, and memory for them. The checks
// here are those of the kernel's driver; devx/ is the firmware.
#include "abi/dispatch.hpp"
#include "devx/commands.hpp"
#include "dma/guarded.hpp"
#include "transport/memory.hpp"

#include <bit>
#include <cerrno>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

namespace accel::softnic {
namespace {

using devx::command_class;

/// The attributes of one method that carry a command.
struct command_attributes {
    std::uint16_t in;
    std::uint16_t out;
};

constexpr command_attributes other_attributes{MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT};
constexpr command_attributes create_attributes{MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                               MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT};
constexpr command_attributes modify_attributes{MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                                               MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT};
constexpr command_attributes query_attributes{MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT};

void trace_command(context& target, std::uint16_t code, const devx::result& ended) {
    hca& state = target.adapter().state;
    if (!state.log.on()) return;
    state.log.line(state.now, state.node(), 0, "devx", "{} = {} {}", devx::name_of(code), devx::to_string(ended.status),
                   devx::to_string(ended.reason));
}

/// What the driver refuses by itself: 0 or an errno value.
int check_driver(const context& target, const devx::mailbox_in& in, command_class kind) {
    const auto code = static_cast<std::uint16_t>(in.get(devx::header::opcode));
    const bool anyone = code == static_cast<std::uint16_t>(devx::opcode::query_hca_cap);
    if (!target.devx_space.enabled && !anyone) return EINVAL;
    if (kind != command_class::general && in.flag(devx::header::vhca_tunnel_id)) return EINVAL;
    return devx::driver_passes(code, kind) ? 0 : EINVAL;
}

/// Copies the command in, runs it, copies the answer out. The firmware's refusal is EREMOTEIO, with status
/// and syndrome in the answer.
int run_command(context& target, command& request, const command_attributes& where, command_class kind,
                std::uint32_t handle, devx::object* made = nullptr) {
    std::vector<std::byte> sent(request.in_size(where.in));
    std::vector<std::byte> answer(request.out_size(where.out));
    request.in_bytes(where.in, sent);
    if (request.faulted()) return EFAULT;
    const devx::mailbox_in in(sent);
    devx::mailbox_out out(answer);
    const auto code = static_cast<std::uint16_t>(in.get(devx::header::opcode));
    if (const int problem = check_driver(target, in, kind); problem != 0) {
        trace_command(target, code, {devx::status::bad_operation, devx::reason::unknown_opcode});
        return problem;
    }
    devx::call what{target, in, out, handle, {}};
    const devx::result ended = devx::execute(what, kind);
    trace_command(target, code, ended);
    request.write(where.out, answer);
    if (!ended.good()) return EREMOTEIO;
    if (made != nullptr) *made = std::move(what.made);
    return 0;
}

int general_command(context& target, command& request) {
    return run_command(target, request, other_attributes, command_class::general, 0);
}

int destroy_devx(context& target, std::uint32_t handle);

int create_object(context& target, command& request) {
    const std::uint32_t handle = target.next_handle();
    devx::object made;
    const int problem = run_command(target, request, create_attributes, command_class::create, handle, &made);
    if (problem != 0) return problem;
    target.devx_space.objects[handle] = std::move(made);
    if (request.faulted()) {  // the program cannot be told what it has
        destroy_devx(target, handle);
        return EFAULT;
    }
    request.out_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, handle);
    return 0;
}

// ---- objects by handle, those of verbs included: queue pairs and completion queues may be asked about too

constexpr std::uint16_t family_mask = 0xff00;
constexpr std::uint16_t family_key = 0x200;
constexpr std::uint16_t family_cq = 0x400;
constexpr std::uint16_t family_qp = 0x500;
constexpr std::uint16_t family_target = 0x700;
constexpr std::uint16_t family_receive = 0x900;

/// Targets are a family of their own, though they stand among the queue pairs.
std::uint32_t queue_pair_number(const context& target, std::uint32_t handle, bool of_target) {
    const auto found = target.qps.find(handle);
    if (found == target.qps.end()) return 0;
    const queue_pair* qp = target.own_device().find_queue_pair(found->second);
    return qp != nullptr && qp->is_target() == of_target ? found->second : 0;
}

/// The number by which commands of this family name the object, or 0.
std::uint32_t number_in_family(const context& target, std::uint32_t handle, std::uint16_t family) {
    if (family == family_qp || family == family_target)
        return queue_pair_number(target, handle, family == family_target);
    if (family == family_receive) {
        const auto found = target.srqs.find(handle);
        return found == target.srqs.end() ? 0 : found->second->who().number;
    }
    if (family == family_cq) {
        const auto found = target.cqs.find(handle);
        return found == target.cqs.end() ? 0 : found->second->number();
    }
    if (family != family_key) return 0;
    const auto found = target.regions.find(handle);
    return found == target.regions.end() ? 0 : found->second >> 8;
}

bool has_object(const context& target, std::uint32_t handle) {
    return target.qps.contains(handle) || target.cqs.contains(handle) || target.regions.contains(handle) ||
           target.srqs.contains(handle) || target.devx_space.objects.contains(handle);
}

/// The command must be about the object that the handle says.
int check_object(context& target, command& request, const command_attributes& where, std::uint32_t handle) {
    if (!has_object(target, handle)) return ENOENT;
    std::array<std::byte, devx::header::bytes> head{};
    request.in_bytes(where.in, head);
    if (request.faulted()) return EFAULT;
    const devx::mailbox_in in(head);
    const auto family = static_cast<std::uint16_t>(in.get(devx::header::opcode) & family_mask);
    const std::uint32_t number = number_in_family(target, handle, family);
    return number != 0 && number == in.get(devx::header::object) ? 0 : EINVAL;
}

int command_on(context& target, command& request, const command_attributes& where, command_class kind,
               std::uint16_t handle_attribute) {
    const std::uint32_t handle = request.handle(handle_attribute);
    if (const int problem = check_object(target, request, where, handle); problem != 0) return problem;
    return run_command(target, request, where, kind, handle);
}

int modify_object(context& target, command& request) {
    return command_on(target, request, modify_attributes, command_class::modify, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
}

int query_object(context& target, command& request) {
    return command_on(target, request, query_attributes, command_class::query, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE);
}

int destroy_completion_queue(context& target, std::uint32_t handle) {
    const auto found = target.cqs.find(handle);
    if (found == target.cqs.end()) return 0;
    constexpr long owners_without_qps = 2;  // the context's map and the nic's
    if (found->second.use_count() > owners_without_qps) return EBUSY;
    target.adapter().remove_cq(*found->second);
    target.cqs.erase(found);
    return 0;
}

int destroy_key(context& target, std::uint32_t handle) {
    const auto found = target.regions.find(handle);
    if (found == target.regions.end()) return 0;
    auto& regions = target.own_device().regions;
    memory::quiesce(target.adapter().state, *regions.find(found->second));
    regions.remove(found->second);
    target.regions.erase(found);
    return 0;
}

int destroy_domain(context& target, std::uint32_t handle) {
    if (target.pd_in_use(handle)) return EBUSY;
    target.pds.erase(handle);
    return 0;
}

int destroy_receive_queue(context& target, std::uint32_t handle) {
    const auto found = target.srqs.find(handle);
    if (found == target.srqs.end()) return 0;
    if (found->second.use_count() > 1) return EBUSY;
    target.srqs.erase(found);
    return 0;
}

/// The driver drains a target before it destroys it. Here, that takes no time.
int destroy_target(context& target, std::uint32_t handle, const devx::object& what) {
    const std::uint32_t number = queue_pair_number(target, handle, true);
    if (number != 0) tell(what.subscribers, {device_event::target_drained, number});
    target.destroy_qp(handle);
    return 0;
}

int destroy_kind(context& target, std::uint32_t handle, const devx::object& what) {
    switch (what.kind) {
        case devx::object_kind::queue_pair:
            target.destroy_qp(handle);
            return 0;
        case devx::object_kind::target:
            return destroy_target(target, handle, what);
        case devx::object_kind::receive_queue:
            return destroy_receive_queue(target, handle);
        case devx::object_kind::completion_queue:
            return destroy_completion_queue(target, handle);
        case devx::object_kind::key:
            return destroy_key(target, handle);
        case devx::object_kind::domain:
            return destroy_domain(target, handle);
    }
    return EINVAL;
}

int destroy_devx(context& target, std::uint32_t handle) {
    const auto found = target.devx_space.objects.find(handle);
    if (found == target.devx_space.objects.end()) return ENOENT;
    if (const int problem = destroy_kind(target, handle, found->second); problem != 0) return problem;
    target.devx_space.objects.erase(found);
    return 0;
}

int destroy_object(context& target, command& request) {
    return destroy_devx(target, request.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE));
}

// ---- memory

int check_umem_access(std::uint32_t flags) {
    constexpr std::uint32_t known =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
    if ((flags & ~known) != 0) return EINVAL;
    return (flags & IBV_ACCESS_REMOTE_WRITE) != 0 && (flags & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

bool both_ends_can_be_read(std::uint64_t start, std::uint64_t length) {
    std::byte probe{};
    return guarded::copy(&probe, guarded::pointer(start), 1) &&
           guarded::copy(&probe, guarded::pointer(start + length - 1), 1);
}

/// Without a bitmap any page will do. One that allows no page of this machine is refused.
bool has_usable_page(command& request) {
    if (!request.has(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP)) return true;
    constexpr int page_shift = 12;
    const auto bitmap = request.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP);
    return bitmap != 0 && std::countr_zero(bitmap) <= page_shift;
}

int check_umem(const context& target, command& request, const devx::umem& memory) {
    if (!target.devx_space.enabled) return EINVAL;
    if (const int problem = check_umem_access(memory.access); problem != 0) return problem;
    if (memory.length == 0 || memory.address + memory.length < memory.address) return EINVAL;
    return has_usable_page(request) ? 0 : EINVAL;
}

/// Of a dma-buf, the address is an offset into it. What virtual address its bytes have, the call does not say.
dma_claim find_umem_engine(context& target, command& request, const devx::umem& memory) {
    const hca& state = target.adapter().state;
    if (!request.has(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD)) return state.dma.for_range(memory.address, memory.length);
    if (!state.config.dmabuf) return {nullptr, EOPNOTSUPP};
    const int descriptor = request.descriptor(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD);
    constexpr std::uint64_t unknown = 0;
    const bool writable = (memory.access & IBV_ACCESS_LOCAL_WRITE) != 0;
    return state.dma.for_dmabuf({descriptor, memory.address, memory.length, unknown}, writable);
}

int give_engine(context& target, command& request, devx::umem& memory) {
    auto claim = find_umem_engine(target, request, memory);
    if (claim.problem != 0) return claim.problem;
    const bool of_host = claim.engine == host_dma();
    if (of_host && !both_ends_can_be_read(memory.address, memory.length)) return EFAULT;
    memory.engine = std::move(claim.engine);
    return 0;
}

int register_umem(context& target, command& request) {
    auto memory = std::make_shared<devx::umem>();
    memory->address = request.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
    memory->length = request.in<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    memory->access = request.in<std::uint32_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS);
    if (const int problem = check_umem(target, request, *memory); problem != 0) return problem;
    if (const int problem = give_engine(target, request, *memory); problem != 0) return problem;
    const std::uint32_t number = target.next_handle();
    request.out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
    if (request.faulted()) return EFAULT;
    request.out_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, number);
    target.devx_space.umems[number] = std::move(memory);
    return 0;
}

int deregister_umem(context& target, command& request) {
    const auto found = target.devx_space.umems.find(request.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE));
    if (found == target.devx_space.umems.end()) return ENOENT;
    if (found->second.use_count() > 1) return EBUSY;
    target.devx_space.umems.erase(found);
    return 0;
}

// ---- small questions

int query_event_queue(context&, command& request) {
    const auto vector = request.in<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
    if (vector >= limits::completion_vectors) return ENOENT;
    request.out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, devx::first_event_queue + vector);
    return 0;
}

/// Only doorbell pages that the driver shares out have two numbers, and there are none.
int query_uar(context&, command&) {
    return EINVAL;
}

constexpr attribute_rule devx_other_rules[]{{MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, true, devx::header::bytes},
                                            {MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, true, devx::header::bytes}};
constexpr attribute_rule devx_create_rules[]{{MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, true, 0},
                                             {MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, true, devx::header::bytes},
                                             {MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, true, devx::header::bytes}};
constexpr attribute_rule devx_modify_rules[]{{MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, true, 0},
                                             {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, true, devx::header::bytes},
                                             {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, true, devx::header::bytes}};
constexpr attribute_rule devx_query_rules[]{{MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, true, 0},
                                            {MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, true, devx::header::bytes},
                                            {MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, true, devx::header::bytes}};
constexpr attribute_rule devx_destroy_rules[]{{MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, true, 0}};
constexpr attribute_rule umem_register_rules[]{
    {MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, true, 0},    {MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, true, 8},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, true, 8},       {MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, true, 4},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, true, 4},    {MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, false, 8},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, false, 0}};
constexpr attribute_rule umem_deregister_rules[]{{MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, true, 0}};
constexpr attribute_rule event_queue_rules[]{{MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, true, 4},
                                             {MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, true, 4}};
constexpr attribute_rule uar_query_rules[]{{MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, true, 4},
                                           {MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, true, 4}};

constexpr method_row devx_method_rows[]{
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX_OTHER", devx_other_rules, general_command},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, "DEVX_QUERY_UAR", uar_query_rules, query_uar},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX_QUERY_EQN", event_queue_rules, query_event_queue},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ_CREATE", devx_create_rules, create_object},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ_MODIFY", devx_modify_rules, modify_object},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ_QUERY", devx_query_rules, query_object},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ_DESTROY", devx_destroy_rules, destroy_object},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM_REG", umem_register_rules, register_umem},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM_DEREG", umem_deregister_rules,
     deregister_umem},
};

}  // namespace

std::span<const method_row> devx_methods() {
    return devx_method_rows;
}

}  // namespace accel::softnic
