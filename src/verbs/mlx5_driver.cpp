// SPDX-License-Identifier: Apache-2.0
#include "verbs/mlx5_driver.hpp"

#include "verbs/failure.hpp"
#include "verbs/mlx5_library.hpp"

#include <cstdlib>
#include <string>

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>
#define ACCEL_HAS_MLX5_HEADER 1
#else
#define ACCEL_HAS_MLX5_HEADER 0
#endif

namespace accel::verbs {
namespace {

bool is_set(const char* variable) noexcept {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value != '\0' && std::string{value} != "0";
}

error unsupported(std::string why) {
    return {status::unsupported, 0, std::move(why)};
}

}  // namespace

mlx5_driver::mlx5_driver() noexcept
    : is_supported_(mlx5_function<is_supported_function>("mlx5dv_is_supported")),
      init_object_(mlx5_function<init_object_function>("mlx5dv_init_obj")) {}

result<const mlx5_driver*> mlx5_driver::of(ibv_context& context) {
    if (!ACCEL_HAS_MLX5_HEADER) return unsupported("built without infiniband/mlx5dv.h");
    static const mlx5_driver loaded;
    if (loaded.is_supported_ == nullptr || loaded.init_object_ == nullptr) return unsupported("libmlx5 is not loaded");
    if (!loaded.is_supported_(context.device)) return unsupported("not an mlx5 device");
    if (is_set("MLX5_QP_SIGNATURE") || is_set("MLX5_SRQ_SIGNATURE"))
        return unsupported("MLX5_QP_SIGNATURE or MLX5_SRQ_SIGNATURE asks for signed work requests");
    return &loaded;
}

#if ACCEL_HAS_MLX5_HEADER
namespace {

static_assert(sizeof(mlx5_wqe_ctrl_seg) == sizeof(mlx5::control_segment) &&
              sizeof(mlx5_cqe64) == sizeof(mlx5::completion_entry) &&
              sizeof(mlx5_err_cqe) == sizeof(mlx5::error_entry) &&
              sizeof(mlx5_wqe_srq_next_seg) == sizeof(mlx5::next_segment));
static_assert(MLX5_OPCODE_RDMA_WRITE_IMM == static_cast<int>(mlx5::opcode::write_immediate) &&
              MLX5_CQE_RESP_ERR == static_cast<int>(mlx5::entry_kind::receive_error) &&
              MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR == static_cast<int>(mlx5::syndrome::remote_aborted) &&
              MLX5_WQE_CTRL_CQ_UPDATE == mlx5::flag_signalled && MLX5_WQE_CTRL_FENCE == mlx5::flag_fence &&
              MLX5_INVALID_LKEY == mlx5::no_key && MLX5_INLINE_SEG == mlx5::inline_marker);

bool is_power_of_two(std::uint32_t value) noexcept {
    return value != 0 && (value & (value - 1)) == 0;
}

mlx5::be32* record(__be32* words, int which) noexcept {
    return reinterpret_cast<mlx5::be32*>(words + which);
}

}  // namespace

result<mlx5_queue_pair> mlx5_driver::locate(ibv_qp& of) const {
    mlx5dv_qp found{};
    mlx5dv_obj wanted{};
    wanted.qp.in = &of;
    wanted.qp.out = &found;
    if (const int failed = init_object_(&wanted, MLX5DV_OBJ_QP); failed != 0)
        return verb_failed("the driver does not report where the queue pair is", failed);
    const bool known = found.sq.buf != nullptr && found.sq.stride == mlx5::wqebb_bytes &&
                       is_power_of_two(found.sq.wqe_cnt) && found.dbrec != nullptr && found.bf.reg != nullptr;
    if (!known) return unsupported("the driver's send queue has an unknown layout; use direct=false");
    mlx5_queue_pair out;
    out.sends.ring = static_cast<std::byte*>(found.sq.buf);
    out.sends.wqebbs = found.sq.wqe_cnt;
    out.sends.queue_pair = of.qp_num;
    out.sends.doorbell_record = record(found.dbrec, MLX5_SND_DBR);
    out.sends.doorbell = static_cast<std::uint64_t*>(found.bf.reg);
    if (of.srq != nullptr || found.rq.wqe_cnt == 0) return out;
    out.receives.ring = static_cast<std::byte*>(found.rq.buf);
    out.receives.count = found.rq.wqe_cnt;
    out.receives.stride = found.rq.stride;
    out.receives.doorbell_record = record(found.dbrec, MLX5_RCV_DBR);
    return out;
}

result<mlx5::completion_queue_ref> mlx5_driver::locate(ibv_cq& of) const {
    mlx5dv_cq found{};
    mlx5dv_obj wanted{};
    wanted.cq.in = &of;
    wanted.cq.out = &found;
    if (const int failed = init_object_(&wanted, MLX5DV_OBJ_CQ); failed != 0)
        return verb_failed("the driver does not report where the completion queue is", failed);
    constexpr std::uint32_t arm_register = MLX5_CQ_DOORBELL;
    const bool known = found.buf != nullptr && (found.cqe_size == 64 || found.cqe_size == 128) &&
                       is_power_of_two(found.cqe_cnt) && found.dbrec != nullptr && found.cq_uar != nullptr;
    if (!known) return unsupported("the driver's completion queue has an unknown layout; use direct=false");
    mlx5::completion_queue_ref out;
    out.entries = static_cast<std::byte*>(found.buf);
    out.count = found.cqe_cnt;
    out.entry_bytes = found.cqe_size;
    out.doorbell_record = record(found.dbrec, 0);
    out.doorbell = reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(found.cq_uar) + arm_register);
    out.number = found.cqn;
    return out;
}

result<mlx5::shared_receive_queue_ref> mlx5_driver::locate(ibv_srq& of) const {
    mlx5dv_srq found{};
    mlx5dv_obj wanted{};
    wanted.srq.in = &of;
    wanted.srq.out = &found;
    if (const int failed = init_object_(&wanted, MLX5DV_OBJ_SRQ); failed != 0)
        return verb_failed("the driver does not report where the shared receive queue is", failed);
    constexpr std::uint32_t min_stride = sizeof(mlx5::next_segment) + sizeof(mlx5::data_segment);
    const bool known = found.buf != nullptr && found.dbrec != nullptr && found.stride >= min_stride &&
                       found.head <= 0xffff && found.tail <= 0xffff;
    if (!known) return unsupported("the driver's shared receive queue has an unknown layout; use direct=false");
    mlx5::shared_receive_queue_ref out;
    out.ring = static_cast<std::byte*>(found.buf);
    out.stride = found.stride;
    out.head = static_cast<std::uint16_t>(found.head);
    out.tail = static_cast<std::uint16_t>(found.tail);
    out.doorbell_record = record(found.dbrec, 0);
    return out;
}
#else
result<mlx5_queue_pair> mlx5_driver::locate(ibv_qp&) const {
    return unsupported("built without infiniband/mlx5dv.h");
}
result<mlx5::completion_queue_ref> mlx5_driver::locate(ibv_cq&) const {
    return unsupported("built without infiniband/mlx5dv.h");
}
result<mlx5::shared_receive_queue_ref> mlx5_driver::locate(ibv_srq&) const {
    return unsupported("built without infiniband/mlx5dv.h");
}
#endif

}  // namespace accel::verbs
