// SPDX-License-Identifier: Apache-2.0
// What an open of the device says to libmlx5, and what can be asked about objects that another open made.
#include "abi/dispatch.hpp"

#include <cerrno>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

namespace accel::softnic {
namespace {

mlx5_ib_alloc_ucontext_resp describe(context& target) {
    mlx5_ib_alloc_ucontext_resp answer{};
    answer.qp_tab_size = 1 << 15;
    answer.bf_reg_size = 512;
    answer.tot_bfregs = 0;  // no static doorbell pages: all are allocated one by one, at offsets we choose
    answer.cache_line_size = 64;
    answer.max_sq_desc_sz = 1024;
    answer.max_rq_desc_sz = 512;
    answer.max_send_wqebb = limits::max_work_requests;
    answer.max_recv_wr = limits::max_work_requests;
    answer.max_srq_recv_wr = limits::max_srq_work_requests;
    answer.num_ports = static_cast<std::uint16_t>(target.own_device().ports().size());
    answer.cqe_version = 1;
    answer.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
    answer.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
    answer.hca_core_clock_offset = 0;
    answer.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
    answer.log_uar_size = 12;
    answer.num_uars_per_page = 1;
    answer.response_length = sizeof answer;
    return answer;
}

int answer_about_context(context& target, command& request, std::uint16_t driver_answer) {
    target.start_clock();
    request.out(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, limits::completion_vectors);
    request.out(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
    request.out(driver_answer, describe(target));
    return 0;
}

int get_context(context& target, command& request) {
    const auto wanted = request.in<mlx5_ib_alloc_ucontext_req_v2>(UVERBS_ATTR_UHW_IN);
    if ((wanted.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0) target.devx_space.enabled = true;
    return answer_about_context(target, request, UVERBS_ATTR_UHW_OUT);
}

/// ibv_import_device: the context of another ibv_context, on a duplicate of its descriptor.
int query_context(context& target, command& request) {
    return answer_about_context(target, request, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX);
}

/// ibv_import_pd. The number of a protection domain is its handle.
int query_pd(context& target, command& request) {
    const std::uint32_t handle = request.handle(MLX5_IB_ATTR_QUERY_PD_HANDLE);
    if (!target.pds.contains(handle)) return ENOENT;
    request.out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, handle);
    return 0;
}

/// ibv_import_mr.
int query_mr(context& target, command& request) {
    const auto found = target.regions.find(request.handle(UVERBS_ATTR_QUERY_MR_HANDLE));
    if (found == target.regions.end()) return ENOENT;
    const memory_region& region = *target.own_device().regions.find(found->second);
    request.out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, region.key);
    request.out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, region.key);
    request.out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, region.length);
    request.out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, region.iova);
    return 0;
}

constexpr attribute_rule get_context_rules[]{{UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, false, 0},
                                             {UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, false, 0},
                                             {UVERBS_ATTR_UHW_IN, false, 0},
                                             {UVERBS_ATTR_UHW_OUT, true, 0}};
constexpr attribute_rule query_context_rules[]{{UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, false, 0},
                                               {UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, false, 0},
                                               {MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, true, 0}};
constexpr attribute_rule query_pd_rules[]{{MLX5_IB_ATTR_QUERY_PD_HANDLE, true, 0},
                                          {MLX5_IB_ATTR_QUERY_PD_RESP_PDN, true, 4}};
constexpr attribute_rule query_mr_rules[]{{UVERBS_ATTR_QUERY_MR_HANDLE, true, 0},
                                          {UVERBS_ATTR_QUERY_MR_RESP_LKEY, false, 4},
                                          {UVERBS_ATTR_QUERY_MR_RESP_RKEY, false, 4},
                                          {UVERBS_ATTR_QUERY_MR_RESP_LENGTH, false, 8},
                                          {UVERBS_ATTR_QUERY_MR_RESP_IOVA, false, 8}};

constexpr method_row context_method_rows[]{
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, "GET_CONTEXT", get_context_rules, get_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, "QUERY_CONTEXT", query_context_rules, query_context},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, "PD_QUERY", query_pd_rules, query_pd},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, "MR_QUERY", query_mr_rules, query_mr},
};

}  // namespace

std::span<const method_row> context_methods() {
    return context_method_rows;
}

}  // namespace accel::softnic
