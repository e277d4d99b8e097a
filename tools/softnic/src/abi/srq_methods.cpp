// SPDX-License-Identifier: Apache-2.0
// Shared receive queues.
#include "abi/dispatch.hpp"

#include <bit>
#include <cerrno>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

namespace accel::softnic {
namespace {

constexpr std::uint32_t segment_bytes_in_wqe = 16;
constexpr std::uint32_t smallest_stride = 32;

/// The driver and the kernel compute the stride alike: link segment and scatter list, rounded up to a power
/// of two.
std::uint32_t stride_shift(std::uint32_t segments) {
    const std::uint32_t bytes = std::max(smallest_stride, (segments + 1) * segment_bytes_in_wqe);
    return static_cast<std::uint32_t>(std::countr_zero(std::bit_ceil(bytes)));
}

int create_srq(context& target, command& request) {
    const auto driver = request.in<mlx5_ib_create_srq>(UVERBS_ATTR_UHW_IN);
    const auto max_wr = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR);
    const auto max_sge = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
    const std::uint32_t pd = request.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE);
    if (request.in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_TYPE) != IB_UVERBS_SRQT_BASIC) return EOPNOTSUPP;
    if (!target.pds.contains(pd) || driver.buf_addr == 0 || driver.db_addr % 4 != 0 || driver.flags != 0) return EINVAL;
    if (max_wr > limits::max_srq_work_requests || max_sge > 31) return EINVAL;
    const std::uint32_t handle = target.next_handle();
    shared_receive_queue::identity who{handle, pd, request.in<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
                                       max_sge, target.asynchronous()};
    const receive_queue_options ring{driver.buf_addr, driver.db_addr, std::bit_ceil(max_wr + 1), stride_shift(max_sge)};
    target.srqs[handle] = std::make_shared<shared_receive_queue>(std::move(who), ring);
    request.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, max_wr);
    request.out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, max_sge);
    request.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{handle, 0});
    request.out_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, handle);
    return 0;
}

int destroy_srq(context& target, command& request) {
    const auto found = target.srqs.find(request.handle(UVERBS_ATTR_DESTROY_SRQ_HANDLE));
    if (found == target.srqs.end()) return EINVAL;
    if (found->second.use_count() > 1) return EBUSY;
    ib_uverbs_destroy_srq_resp answer{};
    answer.events_reported = found->second->events_reported();
    request.out(UVERBS_ATTR_DESTROY_SRQ_RESP, answer);
    target.srqs.erase(found);
    return 0;
}

int modify_srq(context& target, command& request) {
    const auto in = request.in<ib_uverbs_modify_srq>(UVERBS_ATTR_CORE_IN);
    const auto found = target.srqs.find(in.srq_handle);
    if (found == target.srqs.end() || (in.attr_mask & IBV_SRQ_MAX_WR) != 0) return EINVAL;
    if ((in.attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
    if (in.srq_limit >= found->second->options().entries) return EINVAL;
    found->second->arm_limit(in.srq_limit);
    return 0;
}

int query_srq(context& target, command& request) {
    const auto in = request.in<ib_uverbs_query_srq>(UVERBS_ATTR_CORE_IN);
    const auto found = target.srqs.find(in.srq_handle);
    if (found == target.srqs.end()) return EINVAL;
    ib_uverbs_query_srq_resp answer{};
    answer.max_wr = found->second->options().entries - 1;
    answer.max_sge = found->second->who().max_segments;
    answer.srq_limit = found->second->limit();
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

constexpr attribute_rule srq_create_rules[]{
    {UVERBS_ATTR_CREATE_SRQ_HANDLE, true, 0},
    {UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, true, 0},
    {UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, true, 8},
    {UVERBS_ATTR_CREATE_SRQ_MAX_WR, true, 4},
    {UVERBS_ATTR_CREATE_SRQ_MAX_SGE, true, 4},
    {UVERBS_ATTR_CREATE_SRQ_LIMIT, true, 4},
    {UVERBS_ATTR_CREATE_SRQ_TYPE, true, 4},
    {UVERBS_ATTR_CREATE_SRQ_EVENT_FD, false, 0},
    {UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, true, 4},
    {UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, true, 4},
    {UVERBS_ATTR_UHW_IN, true, 20},
    {UVERBS_ATTR_UHW_OUT, true, 4},
};
constexpr attribute_rule srq_destroy_rules[]{{UVERBS_ATTR_DESTROY_SRQ_HANDLE, true, 0},
                                             {UVERBS_ATTR_DESTROY_SRQ_RESP, true, 0}};

constexpr method_row srq_method_rows[]{
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, "SRQ_CREATE", srq_create_rules, create_srq},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, "SRQ_DESTROY", srq_destroy_rules, destroy_srq},
};

constexpr write_row srq_write_rows[]{
    {IB_USER_VERBS_CMD_MODIFY_SRQ, "MODIFY_SRQ", sizeof(ib_uverbs_modify_srq), modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, "QUERY_SRQ", sizeof(ib_uverbs_query_srq), query_srq},
};

}  // namespace

std::span<const method_row> srq_methods() {
    return srq_method_rows;
}
std::span<const write_row> srq_writes() {
    return srq_write_rows;
}

}  // namespace accel::softnic
