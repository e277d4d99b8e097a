// SPDX-License-Identifier: Apache-2.0
// Queue pairs.
#include "abi/dispatch.hpp"

#include <bit>
#include <cerrno>
#include <optional>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

namespace accel::softnic {
namespace {

constexpr std::uint32_t smallest_receive_shift = 4;
constexpr std::uint32_t largest_receive_shift = 10;
constexpr std::uint32_t known_flags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                      MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_TYPE_DCT |
                                      MLX5_QP_FLAG_TYPE_DCI;

bool is_ring(std::uint32_t entries) {
    return entries == 0 || (std::has_single_bit(entries) && entries <= limits::max_work_requests);
}

int check_driver_part(const mlx5_ib_create_qp& driver) {
    if ((driver.flags & ~known_flags) != 0) return EOPNOTSUPP;
    if ((driver.flags & MLX5_QP_FLAG_TYPE_DCT) != 0) return 0;  // it has no queues
    if (!is_ring(driver.sq_wqe_count) || !is_ring(driver.rq_wqe_count)) return EINVAL;
    if (driver.buf_addr == 0 || driver.db_addr % 8 != 0) return EINVAL;
    const bool bad_shift = driver.rq_wqe_shift < smallest_receive_shift || driver.rq_wqe_shift > largest_receive_shift;
    return driver.rq_wqe_count != 0 && bad_shift ? EINVAL : 0;
}

/// The receive ring is at buf_addr, the send ring behind it.
void set_rings(const mlx5_ib_create_qp& driver, queue_pair_options& options) {
    options.user_index = driver.uidx;
    options.doorbell_record = driver.db_addr;
    options.send_wqebbs = driver.sq_wqe_count;
    options.uar_page = driver.bfreg_index;
    const std::uint32_t receives = options.shared_receives ? 0 : driver.rq_wqe_count;
    options.receives = {driver.buf_addr, driver.db_addr, receives, driver.rq_wqe_shift};
    options.send_buffer = driver.buf_addr + (std::uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift);
}

/// Dynamically connected queue pairs are of the driver's own type, and its flags say which.
std::optional<qp_type> find_type(std::uint32_t type, std::uint32_t flags) {
    const std::uint32_t dynamic = flags & (MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI);
    if (type == IBV_QPT_DRIVER && dynamic == MLX5_QP_FLAG_TYPE_DCI) return qp_type::dynamic_initiator;
    if (type == IBV_QPT_DRIVER && dynamic == MLX5_QP_FLAG_TYPE_DCT) return qp_type::dynamic_target;
    if ((type != IBV_QPT_RC && type != IBV_QPT_UD) || dynamic != 0) return std::nullopt;
    return static_cast<qp_type>(type);
}

/// A target has no queues of its own, and an initiator receives nothing.
void set_dynamic(const mlx5_ib_create_qp& driver, queue_pair_options& options) {
    if (options.type == qp_type::dynamic_initiator) options.shared_receives = nullptr;
    if (options.type != qp_type::dynamic_target) return;
    options.access_key = driver.access_key;
    options.send_cq = nullptr;
    options.send_wqebbs = 0;
    options.receives = {};
    options.doorbell_record = {};
}

bool has_queues(const queue_pair_options& options) {
    if (options.type == qp_type::dynamic_target) return options.receive_cq && options.shared_receives;
    if (options.type == qp_type::dynamic_initiator) return options.send_cq != nullptr;
    return options.send_cq && options.receive_cq;
}

template <class Map>
auto look_up(const Map& map, std::uint32_t handle) {
    const auto found = map.find(handle);
    return found == map.end() ? typename Map::mapped_type{} : found->second;
}

int create_qp(context& target, command& request) {
    const auto driver = request.in<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
    const auto type = find_type(request.in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_TYPE), driver.flags);
    if (!type) return EOPNOTSUPP;
    if (const int problem = check_driver_part(driver); problem != 0) return problem;
    queue_pair_options options;
    options.type = *type;
    options.pd = request.handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE);
    options.user_handle = request.in<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
    options.send_cq = look_up(target.cqs, request.handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE));
    options.receive_cq = look_up(target.cqs, request.handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE));
    options.shared_receives = look_up(target.srqs, request.handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE));
    options.asynchronous = target.asynchronous();
    if (!target.pds.contains(options.pd) || !has_queues(options)) return EINVAL;
    if (request.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) && !options.shared_receives) return EINVAL;
    const auto flags = request.in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
    if ((flags & ~static_cast<std::uint32_t>(IB_UVERBS_QP_CREATE_SQ_SIG_ALL)) != 0) return EOPNOTSUPP;
    options.signal_all = flags != 0;
    set_rings(driver, options);
    set_dynamic(driver, options);
    const queue_pair* made = target.adapter().create_qp(target.device_index(), std::move(options));
    if (made == nullptr) return ENOMEM;
    const std::uint32_t handle = target.next_handle();
    target.qps[handle] = made->number;
    request.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_qp_resp{});
    request.out(UVERBS_ATTR_CREATE_QP_RESP_CAP, request.in<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP));
    // A target gets its number when it can receive, as from the adapter.
    request.out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, made->is_target() ? 0 : made->number);
    request.out_handle(UVERBS_ATTR_CREATE_QP_HANDLE, handle);
    return 0;
}

queue_pair* find_qp(context& target, std::uint32_t handle) {
    const auto found = target.qps.find(handle);
    return found == target.qps.end() ? nullptr : target.own_device().find_queue_pair(found->second);
}

int destroy_qp(context& target, command& request) {
    const std::uint32_t handle = request.handle(UVERBS_ATTR_DESTROY_QP_HANDLE);
    queue_pair* qp = find_qp(target, handle);
    if (qp == nullptr) return EINVAL;
    ib_uverbs_destroy_qp_resp answer{};
    answer.events_reported = qp->events;
    if (qp->options.asynchronous)
        answer.events_reported -= qp->options.asynchronous->take_back(qp->options.user_handle);
    request.out(UVERBS_ATTR_DESTROY_QP_RESP, answer);
    target.destroy_qp(handle);
    return 0;
}

path path_from(const ib_uverbs_qp_dest& from) {
    path to;
    std::copy(std::begin(from.dgid), std::end(from.dgid), to.gid.begin());
    to.flow_label = from.flow_label;
    to.dlid = from.dlid;
    to.sgid_index = from.sgid_index;
    to.hop_limit = from.hop_limit;
    to.traffic_class = from.traffic_class;
    to.service_level = from.sl;
    to.source_path_bits = from.src_path_bits;
    to.static_rate = from.static_rate;
    to.global = from.is_global != 0;
    to.port = from.port_num;
    return to;
}

ib_uverbs_qp_dest path_to(const path& from) {
    ib_uverbs_qp_dest to{};
    std::copy(from.gid.begin(), from.gid.end(), std::begin(to.dgid));
    to.flow_label = from.flow_label;
    to.dlid = from.dlid;
    to.sgid_index = from.sgid_index;
    to.hop_limit = from.hop_limit;
    to.traffic_class = from.traffic_class;
    to.sl = from.service_level;
    to.src_path_bits = from.source_path_bits;
    to.static_rate = from.static_rate;
    to.is_global = from.global ? 1 : 0;
    to.port_num = from.port;
    return to;
}

qp_modification modification_from(const ib_uverbs_modify_qp& in) {
    qp_modification change;
    change.mask = in.attr_mask;
    change.next = static_cast<qp_state>(in.qp_state);
    change.current = static_cast<qp_state>(in.cur_qp_state);
    change.notify_drained = in.en_sqd_async_notify != 0;
    auto& values = change.values;
    values.destination = path_from(in.dest);
    values.qkey = in.qkey;
    values.receive_psn = in.rq_psn;
    values.send_psn = in.sq_psn;
    values.remote_qpn = in.dest_qp_num;
    values.access = in.qp_access_flags;
    values.pkey_index = in.pkey_index;
    values.path_mtu = in.path_mtu;
    values.max_rd_atomic = in.max_rd_atomic;
    values.max_dest_rd_atomic = in.max_dest_rd_atomic;
    values.min_rnr_timer = in.min_rnr_timer;
    values.port = in.port_num;
    values.timeout = in.timeout;
    values.retry_count = in.retry_cnt;
    values.rnr_retry = in.rnr_retry;
    return change;
}

int modify_qp(context& target, command& request) {
    const auto in = request.in<ib_uverbs_modify_qp>(UVERBS_ATTR_CORE_IN);
    queue_pair* qp = find_qp(target, in.qp_handle);
    if (qp == nullptr || in.qp_state > IBV_QPS_ERR) return EINVAL;
    const int problem = target.adapter().modify_qp(*qp, modification_from(in));
    if (problem == 0 && qp->is_target()) {
        mlx5_ib_modify_qp_resp answer{};
        answer.response_length = sizeof answer;
        answer.dctn = qp->state == qp_state::ready_to_receive ? qp->number : 0;
        request.out(UVERBS_ATTR_UHW_OUT, answer);
    }
    return problem;
}

int query_qp(context& target, command& request) {
    const auto in = request.in<ib_uverbs_query_qp>(UVERBS_ATTR_CORE_IN);
    const queue_pair* qp = find_qp(target, in.qp_handle);
    if (qp == nullptr) return EINVAL;
    const auto& attributes = qp->attributes;
    ib_uverbs_query_qp_resp answer{};
    answer.dest = path_to(attributes.destination);
    answer.max_send_wr = qp->options.send_wqebbs;
    answer.max_recv_wr = qp->options.receives.entries;
    answer.max_send_sge = limits::max_segments;
    answer.max_recv_sge = limits::max_segments;
    answer.qkey = attributes.qkey;
    answer.rq_psn = qp->responder.expected_psn;
    answer.sq_psn = qp->requester.next_psn;
    answer.dest_qp_num = attributes.remote_qpn;
    answer.qp_access_flags = attributes.access;
    answer.pkey_index = attributes.pkey_index;
    answer.qp_state = answer.cur_qp_state = static_cast<std::uint8_t>(qp->state);
    answer.path_mtu = attributes.path_mtu;
    answer.sq_draining = qp->draining ? 1 : 0;
    answer.max_rd_atomic = attributes.max_rd_atomic;
    answer.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
    answer.min_rnr_timer = attributes.min_rnr_timer;
    answer.port_num = attributes.port;
    answer.timeout = attributes.timeout;
    answer.retry_cnt = attributes.retry_count;
    answer.rnr_retry = attributes.rnr_retry;
    answer.sq_sig_all = qp->options.signal_all ? 1 : 0;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

constexpr attribute_rule qp_create_rules[]{
    {UVERBS_ATTR_CREATE_QP_HANDLE, true, 0},
    {UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_QP_PD_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, false, 0},
    {UVERBS_ATTR_CREATE_QP_USER_HANDLE, true, 8},
    {UVERBS_ATTR_CREATE_QP_CAP, true, 20},
    {UVERBS_ATTR_CREATE_QP_TYPE, true, 4},
    {UVERBS_ATTR_CREATE_QP_FLAGS, false, 0},
    {UVERBS_ATTR_CREATE_QP_EVENT_FD, false, 0},
    {UVERBS_ATTR_CREATE_QP_RESP_CAP, true, 0},
    {UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, true, 4},
    {UVERBS_ATTR_UHW_IN, true, 36},
    {UVERBS_ATTR_UHW_OUT, true, 4},
};
constexpr attribute_rule qp_destroy_rules[]{{UVERBS_ATTR_DESTROY_QP_HANDLE, true, 0},
                                            {UVERBS_ATTR_DESTROY_QP_RESP, true, 0}};

constexpr method_row qp_method_rows[]{
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, "QP_CREATE", qp_create_rules, create_qp},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, "QP_DESTROY", qp_destroy_rules, destroy_qp},
};

constexpr write_row qp_write_rows[]{
    {IB_USER_VERBS_CMD_MODIFY_QP, "MODIFY_QP", sizeof(ib_uverbs_modify_qp), modify_qp},
    {IB_USER_VERBS_CMD_MODIFY_QP | IB_USER_VERBS_CMD_FLAG_EXTENDED, "MODIFY_QP_EX", sizeof(ib_uverbs_modify_qp),
     modify_qp},
    {IB_USER_VERBS_CMD_QUERY_QP, "QUERY_QP", sizeof(ib_uverbs_query_qp), query_qp},
};

}  // namespace

std::span<const method_row> qp_methods() {
    return qp_method_rows;
}
std::span<const write_row> qp_writes() {
    return qp_write_rows;
}

}  // namespace accel::softnic
