// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

/// Commands to the firmware of an mlx5 adapter. Opcodes, and the places and names of fields, are those of NVIDIA's
/// programmer's reference manual, and of mlx5_ifc.h in Linux and rdma-core. Offsets and widths are in bits.
namespace accel::gpu::devx {

struct field {
    std::uint32_t offset = 0;
    std::uint32_t width = 0;

    /// The same field of a structure that begins at `start`.
    [[nodiscard]] constexpr field in(std::uint32_t start) const noexcept { return {start + offset, width}; }
};

enum class opcode : std::uint16_t {
    create_cq = 0x400,
    create_qp = 0x500,
    rst2init_qp = 0x502,
    init2rtr_qp = 0x503,
    rtr2rts_qp = 0x504,
    qp_2err = 0x507,
    qp_2rst = 0x50a,
};

/// Fields of every command, and of every answer.
namespace header {
inline constexpr field opcode{0x00, 16};
inline constexpr field object{0x48, 24};  ///< the number of a queue
inline constexpr field status{0x00, 8};
inline constexpr field syndrome{0x20, 32};
}  // namespace header

namespace create_cq {
inline constexpr std::uint32_t context = 0x80;
inline constexpr field umem_offset{0x280, 64};
inline constexpr field umem_id{0x2c0, 32};
}  // namespace create_cq

/// Completion queue context.
namespace cqc {
inline constexpr field dbr_umem_id{0x20, 32};
inline constexpr field log_cq_size{0x63, 5};
inline constexpr field uar_page{0x68, 24};
inline constexpr field c_eqn{0xb8, 8};
inline constexpr field dbr_addr{0x1c0, 64};  ///< offset of the record in its umem
}  // namespace cqc

namespace create_qp {
inline constexpr field wq_umem_offset{0x800, 64};
inline constexpr field wq_umem_id{0x840, 32};
}  // namespace create_qp

/// Queue pair context, which begins at the same place in all commands here.
namespace qpc {
inline constexpr std::uint32_t start = 0xc0;
inline constexpr field pm_state{0x13, 2};
inline constexpr field pd{0x28, 24};
inline constexpr field mtu{0x40, 3};
inline constexpr field log_msg_max{0x43, 5};
inline constexpr field log_sq_size{0x51, 4};
inline constexpr field uar_page{0x68, 24};
inline constexpr field user_index{0x88, 24};
inline constexpr field remote_qpn{0xa8, 24};
inline constexpr std::uint32_t primary_address_path = 0xc0;
inline constexpr field log_ack_req_freq{0x380, 4};
inline constexpr field retry_count{0x38d, 3};
inline constexpr field rnr_retry{0x390, 3};
inline constexpr field next_send_psn{0x3c8, 24};
inline constexpr field cqn_snd{0x3e8, 24};
inline constexpr field rwe{0x491, 1};
inline constexpr field min_rnr_nak{0x4a3, 5};
inline constexpr field next_rcv_psn{0x4a8, 24};
inline constexpr field cqn_rcv{0x4e8, 24};
inline constexpr field dbr_addr{0x500, 64};  ///< offset of the record in its umem
inline constexpr field rq_type{0x565, 3};
inline constexpr field dbr_umem_id{0x720, 32};

inline constexpr std::uint32_t migrated = 3;          ///< of pm_state: no other path
inline constexpr std::uint32_t no_receive_queue = 3;  ///< of rq_type
}  // namespace qpc

/// Address path, inside a queue pair context.
namespace ads {
inline constexpr field grh{0x28, 1};
inline constexpr field rlid{0x30, 16};  ///< RoCE: the UDP source port
inline constexpr field ack_timeout{0x40, 5};
inline constexpr field src_addr_index{0x48, 8};
inline constexpr field hop_limit{0x58, 8};
inline constexpr field rgid_rip{0x80, 128};
inline constexpr field vhca_port_num{0x128, 8};
inline constexpr field rmac{0x130, 48};
}  // namespace ads

/// A command and its answer.
class command {
  public:
    explicit command(opcode code) : in_(max_bytes), out_(max_bytes) {
        set(header::opcode, static_cast<std::uint16_t>(code));
    }

    /// A value of at most 64 bits; the rest of a wider field stays 0.
    command& set(field where, std::uint64_t value) noexcept {
        for (std::uint32_t i = 0; i < where.width && i < 64; ++i) {
            // The least significant bit is the last.
            const std::uint32_t at = where.offset + where.width - 1 - i;
            const auto bit = static_cast<std::byte>(0x80U >> (at % 8));
            if ((value >> i & 1U) != 0)
                in_[at / 8] |= bit;
            else
                in_[at / 8] &= ~bit;
        }
        return *this;
    }
    command& set_bytes(field where, std::span<const std::uint8_t> bytes) noexcept {
        for (std::size_t i = 0; i < bytes.size(); ++i)
            set({where.offset + static_cast<std::uint32_t>(8 * i), 8}, bytes[i]);
        return *this;
    }
    /// A value of the answer.
    [[nodiscard]] std::uint32_t get(field where) const noexcept {
        std::uint32_t value = 0;
        for (std::uint32_t at = where.offset; at < where.offset + where.width; ++at)
            value = value << 1U | (static_cast<std::uint32_t>(out_[at / 8]) >> (7 - at % 8) & 1U);
        return value;
    }
    /// Why the firmware has refused; empty if it did not come so far.
    [[nodiscard]] std::string refusal() const {
        const std::uint32_t status = get(header::status);
        if (status == 0) return {};
        return fmt::format(" (the firmware's status {:#x}, syndrome {:#x})", status, get(header::syndrome));
    }

    [[nodiscard]] const void* in() const noexcept { return in_.data(); }
    [[nodiscard]] void* out() noexcept { return out_.data(); }
    /// The length of each.
    [[nodiscard]] static constexpr std::size_t bytes() noexcept { return max_bytes; }

  private:
    /// The longest command here is CREATE_QP.
    static constexpr std::size_t max_bytes = 0x880 / 8;
    std::vector<std::byte> in_;
    std::vector<std::byte> out_;
};

}  // namespace accel::gpu::devx
