// SPDX-License-Identifier: Apache-2.0
// Completion queues and their channels.
#include "abi/dispatch.hpp"

#include <bit>
#include <cerrno>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

namespace accel::softnic {
namespace {

int create_channel(context& target, command& request) {
    auto channel = std::make_shared<event_pipe>(event_pipe::kind::completion);
    const int descriptor = channel->read_descriptor();
    target.channels[descriptor] = std::move(channel);
    request.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_create_comp_channel_resp{static_cast<std::uint32_t>(descriptor)});
    return 0;
}

int find_channel(context& target, command& request, std::shared_ptr<event_pipe>& channel) {
    if (!request.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) return 0;
    const auto found = target.channels.find(request.descriptor(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL));
    if (found == target.channels.end()) return EBADF;
    channel = found->second;
    return 0;
}

int create_cq(context& target, command& request) {
    const auto driver = request.in<mlx5_ib_create_cq>(UVERBS_ATTR_UHW_IN);
    const auto entries = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
    const auto vector = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
    if (entries == 0 || entries > limits::max_cqe || vector >= limits::completion_vectors) return EINVAL;
    if (driver.cqe_size != 64 && driver.cqe_size != 128) return EINVAL;
    if (driver.buf_addr == 0 || driver.db_addr % 8 != 0 || driver.cqe_comp_en != 0) return EINVAL;
    completion_queue_options options;
    options.buffer = driver.buf_addr;
    options.doorbell_record = driver.db_addr;
    options.entries = std::bit_ceil(entries + 1);
    options.entry_bytes = driver.cqe_size;
    options.user_handle = request.in<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
    options.asynchronous = target.asynchronous();
    const auto flags = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS);
    options.ignore_overrun = (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
    if (const int problem = find_channel(target, request, options.channel); problem != 0) return problem;
    const std::uint32_t usable = options.entries - 1;
    auto cq = target.adapter().create_cq(std::move(options));
    const std::uint32_t handle = target.next_handle();
    request.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{cq->number(), 0});
    request.out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, usable);
    request.out_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
    target.cqs[handle] = std::move(cq);
    return 0;
}

int destroy_cq(context& target, command& request) {
    const auto found = target.cqs.find(request.handle(UVERBS_ATTR_DESTROY_CQ_HANDLE));
    if (found == target.cqs.end()) return EINVAL;
    completion_queue& cq = *found->second;
    constexpr long owners_without_qps = 2;  // the context's map and the nic's
    if (found->second.use_count() > owners_without_qps) return EBUSY;
    ib_uverbs_destroy_cq_resp answer{};
    answer.comp_events_reported = cq.completion_events_reported();
    answer.async_events_reported = cq.asynchronous_events_reported();
    request.out(UVERBS_ATTR_DESTROY_CQ_RESP, answer);
    target.adapter().remove_cq(cq);
    target.cqs.erase(found);
    return 0;
}

int resize_cq(context& target, command& request) {
    const auto in = request.in<ib_uverbs_resize_cq>(UVERBS_ATTR_CORE_IN);
    const auto driver = request.in<mlx5_ib_resize_cq>(UVERBS_ATTR_UHW_IN);
    const auto found = target.cqs.find(in.cq_handle);
    if (found == target.cqs.end() || in.cqe == 0 || in.cqe > limits::max_cqe || driver.buf_addr == 0) return EINVAL;
    if (driver.cqe_size != found->second->options().entry_bytes) return EINVAL;
    const std::uint32_t entries = std::bit_ceil(in.cqe + 1);
    if (!found->second->resize(driver.buf_addr, entries)) return EINVAL;
    ib_uverbs_resize_cq_resp answer{};
    answer.cqe = entries - 1;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

/// Moderation (how many completions an event may wait for) is accepted; every event is sent at once.
int modify_cq(context& target, command& request) {
    const auto in = request.in<ib_uverbs_ex_modify_cq>(UVERBS_ATTR_CORE_IN);
    return target.cqs.contains(in.cq_handle) ? 0 : EINVAL;
}

constexpr attribute_rule cq_create_rules[]{
    {UVERBS_ATTR_CREATE_CQ_HANDLE, true, 0},
    {UVERBS_ATTR_CREATE_CQ_CQE, true, 4},
    {UVERBS_ATTR_CREATE_CQ_USER_HANDLE, true, 8},
    {UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, false, 0},
    {UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, true, 4},
    {UVERBS_ATTR_CREATE_CQ_FLAGS, false, 0},
    {UVERBS_ATTR_CREATE_CQ_RESP_CQE, true, 4},
    {UVERBS_ATTR_CREATE_CQ_EVENT_FD, false, 0},
    {UVERBS_ATTR_UHW_IN, true, 20},
    {UVERBS_ATTR_UHW_OUT, true, 4},
};
constexpr attribute_rule cq_destroy_rules[]{{UVERBS_ATTR_DESTROY_CQ_HANDLE, true, 0},
                                            {UVERBS_ATTR_DESTROY_CQ_RESP, true, 0}};

constexpr method_row cq_method_rows[]{
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, "CQ_CREATE", cq_create_rules, create_cq},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, "CQ_DESTROY", cq_destroy_rules, destroy_cq},
};

constexpr write_row cq_write_rows[]{
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "CREATE_COMP_CHANNEL", 0, create_channel},
    {IB_USER_VERBS_CMD_RESIZE_CQ, "RESIZE_CQ", sizeof(ib_uverbs_resize_cq), resize_cq},
    {IB_USER_VERBS_EX_CMD_MODIFY_CQ | IB_USER_VERBS_CMD_FLAG_EXTENDED, "MODIFY_CQ", sizeof(ib_uverbs_ex_modify_cq) - 4,
     modify_cq},
};

}  // namespace

std::span<const method_row> cq_methods() {
    return cq_method_rows;
}
std::span<const write_row> cq_writes() {
    return cq_write_rows;
}

}  // namespace accel::softnic
