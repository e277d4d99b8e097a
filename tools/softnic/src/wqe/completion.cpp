// SPDX-License-Identifier: Apache-2.0
#include "wqe/completion.hpp"

#include <bit>

#include <endian.h>
#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

using cqe_image = std::array<std::byte, cqe_bytes>;
static_assert(sizeof(mlx5_cqe64) == cqe_bytes && sizeof(mlx5_err_cqe) == cqe_bytes);

std::uint8_t owner_byte(std::uint8_t kind, bool solicited, bool owner) {
    return static_cast<std::uint8_t>(kind << 4 | (solicited ? 2 : 0) | (owner ? 1 : 0));
}

cqe_image encode_error(const completion& what, std::uint8_t kind, bool owner) {
    mlx5_err_cqe cqe{};
    cqe.srqn = htobe32(what.user_index);
    cqe.vendor_err_synd = static_cast<std::uint8_t>(what.vendor);
    cqe.syndrome = static_cast<std::uint8_t>(what.error);
    cqe.s_wqe_opcode_qpn = htobe32(static_cast<std::uint32_t>(what.opcode) << 24 | what.qpn);
    cqe.wqe_counter = htobe16(what.wqe_counter);
    cqe.op_own = owner_byte(kind, false, owner);
    return std::bit_cast<cqe_image>(cqe);
}

std::uint32_t flags_and_source(const completion& what) {
    return (what.has_grh ? 1u << 28 : 0u) | static_cast<std::uint32_t>(what.service_level & 0xf) << 24 |
           (what.source_qpn & 0xffffff);
}

}  // namespace

cqe_image encode_cqe(const completion& what, std::uint8_t kind, bool owner, std::uint64_t timestamp) {
    if (kind == MLX5_CQE_REQ_ERR || kind == MLX5_CQE_RESP_ERR) return encode_error(what, kind, owner);
    mlx5_cqe64 cqe{};
    cqe.srqn_uidx = htobe32(what.user_index);
    cqe.sop_drop_qpn = htobe32(static_cast<std::uint32_t>(what.opcode) << 24 | what.qpn);
    cqe.wqe_counter = htobe16(what.wqe_counter);
    cqe.byte_cnt = htobe32(what.byte_count);
    cqe.imm_inval_pkey = what.immediate;
    cqe.slid = htobe16(what.source_lid);
    cqe.flags_rqpn = htobe32(flags_and_source(what));
    cqe.timestamp = htobe64(timestamp);
    cqe.op_own = owner_byte(kind, what.solicited, owner);
    return std::bit_cast<cqe_image>(cqe);
}

}  // namespace accel::softnic
