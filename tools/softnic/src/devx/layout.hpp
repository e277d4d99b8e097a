// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devx/mailbox.hpp"

/// Opcodes, and where the fields that softnic reads or writes stand. Names are those of the vendor's
/// programming manual; offsets are in bits.
namespace accel::softnic::devx {

enum class opcode : std::uint16_t {
    query_hca_cap = 0x100,
    create_mkey = 0x200,
    create_cq = 0x400,
    query_cq = 0x402,
    modify_cq = 0x403,
    create_qp = 0x500,
    rst2init_qp = 0x502,
    init2rtr_qp = 0x503,
    rtr2rts_qp = 0x504,
    rts2rts_qp = 0x505,
    qp_2err = 0x507,
    qp_2rst = 0x50a,
    query_qp = 0x50b,
    init2init_qp = 0x50e,
    create_dct = 0x710,
    query_dct = 0x713,
    arm_dct_for_key_violation = 0x714,
    query_roce_address = 0x760,
    alloc_pd = 0x800,
    nop = 0x80d,
    query_lag = 0x842,
    create_rmp = 0x90c,
    modify_rmp = 0x90d,
    query_rmp = 0x90f,
};

/// What every command begins with, and every answer.
namespace header {
inline constexpr field opcode{0x00, 16};
inline constexpr field vhca_tunnel_id{0x20, 16};
inline constexpr field op_mod{0x30, 16};
inline constexpr field object{0x48, 24};  ///< number of the queue pair, completion queue, key or domain
inline constexpr field status{0x00, 8};
inline constexpr field syndrome{0x20, 32};
inline constexpr std::uint16_t bytes = 16;
}  // namespace header

namespace create_cq {
inline constexpr std::uint32_t context = 0x80;
inline constexpr field umem_offset{0x280, 64};
inline constexpr field umem_id{0x2c0, 32};
inline constexpr std::uint16_t in_bytes = 0x2e0 / 8 + 4;
}  // namespace create_cq

namespace query_cq {
inline constexpr std::uint32_t context = 0x80;
inline constexpr std::uint16_t out_bytes = 16 + 64;
}  // namespace query_cq

namespace modify_cq {
inline constexpr std::uint16_t in_bytes = 16 + 64;
}  // namespace modify_cq

/// Completion queue context.
namespace cqc {
inline constexpr field status{0x00, 4};
inline constexpr field cqe_sz{0x08, 3};
inline constexpr field cc{0x0b, 1};  ///< collapsed: every element goes to the first place
inline constexpr field oi{0x0e, 1};  ///< overrun is ignored
inline constexpr field cqe_comp_en{0x11, 1};
inline constexpr field st{0x14, 4};
inline constexpr field dbr_umem_id{0x20, 32};
inline constexpr field log_cq_size{0x63, 5};
inline constexpr field uar_page{0x68, 24};
inline constexpr field c_eqn{0xb8, 8};
inline constexpr field consumer_counter{0x148, 24};
inline constexpr field producer_counter{0x168, 24};
inline constexpr field dbr_addr{0x1c0, 64};  ///< offset into the umem of the record
}  // namespace cqc

namespace create_qp {
inline constexpr std::uint32_t context = 0xc0;
inline constexpr field wq_umem_offset{0x800, 64};
inline constexpr field wq_umem_id{0x840, 32};
inline constexpr std::uint16_t in_bytes = 0x880 / 8;
}  // namespace create_qp

/// All commands that move a queue pair between states, but 2ERR and 2RST, which have no context.
namespace modify_qp {
inline constexpr field opt_param_mask{0x80, 32};
inline constexpr std::uint32_t context = 0xc0;
inline constexpr std::uint16_t in_bytes = 0x880 / 8;
}  // namespace modify_qp

namespace query_qp {
inline constexpr std::uint32_t context = 0xc0;
inline constexpr std::uint16_t out_bytes = 0x880 / 8;
}  // namespace query_qp

/// Bits of opt_param_mask: which values of the context count beyond those that a step always takes.
namespace opt_param {
inline constexpr std::uint32_t rre = 1 << 1;
inline constexpr std::uint32_t rae = 1 << 2;
inline constexpr std::uint32_t rwe = 1 << 3;
inline constexpr std::uint32_t pkey_index = 1 << 4;
inline constexpr std::uint32_t rnr_timeout = 1 << 6;
inline constexpr std::uint32_t primary_port = 1 << 16;
}  // namespace opt_param

/// Queue pair context.
namespace qpc {
inline constexpr field state{0x00, 4};
inline constexpr field st{0x08, 8};
inline constexpr field pm_state{0x13, 2};
inline constexpr field pd{0x28, 24};
inline constexpr field mtu{0x40, 3};
inline constexpr field log_msg_max{0x43, 5};
inline constexpr field log_rq_size{0x49, 4};
inline constexpr field log_rq_stride{0x4d, 3};
inline constexpr field no_sq{0x50, 1};
inline constexpr field log_sq_size{0x51, 4};
inline constexpr field uar_page{0x68, 24};
inline constexpr field send_dbr_mode{0x80, 2};
inline constexpr field user_index{0x88, 24};
inline constexpr field remote_qpn{0xa8, 24};
inline constexpr std::uint32_t primary_address_path = 0xc0;
inline constexpr field log_sra_max{0x388, 3};
inline constexpr field retry_count{0x38d, 3};
inline constexpr field rnr_retry{0x390, 3};
inline constexpr field next_send_psn{0x3c8, 24};
inline constexpr field cqn_snd{0x3e8, 24};
inline constexpr field last_acked_psn{0x448, 24};
inline constexpr field log_rra_max{0x488, 3};
inline constexpr field rre{0x490, 1};
inline constexpr field rwe{0x491, 1};
inline constexpr field rae{0x492, 1};
inline constexpr field min_rnr_nak{0x4a3, 5};
inline constexpr field next_rcv_psn{0x4a8, 24};
inline constexpr field cqn_rcv{0x4e8, 24};
inline constexpr field dbr_addr{0x500, 64};  ///< offset into the umem of the record
inline constexpr field rq_type{0x565, 3};
inline constexpr field srqn_rmpn_xrqn{0x568, 24};
inline constexpr field hw_sq_wqebb_counter{0x5a0, 16};
inline constexpr field sw_sq_wqebb_counter{0x5b0, 16};
inline constexpr field dbr_umem_id{0x720, 32};
}  // namespace qpc

/// Address path, inside a queue pair context.
namespace ads {
inline constexpr field pkey_index{0x10, 16};
inline constexpr field grh{0x28, 1};
inline constexpr field mlid{0x29, 7};
inline constexpr field rlid{0x30, 16};
inline constexpr field ack_timeout{0x40, 5};
inline constexpr field src_addr_index{0x48, 8};
inline constexpr field stat_rate{0x54, 4};
inline constexpr field hop_limit{0x58, 8};
inline constexpr field tclass{0x64, 8};
inline constexpr field flow_label{0x6c, 20};
inline constexpr field rgid_rip{0x80, 128};
inline constexpr field sl{0x124, 4};
inline constexpr field vhca_port_num{0x128, 8};
inline constexpr field rmac{0x130, 48};
}  // namespace ads

namespace create_dct {
inline constexpr std::uint32_t context = 0x80;
inline constexpr std::uint16_t in_bytes = 16 + 64;
}  // namespace create_dct

namespace query_dct {
inline constexpr std::uint32_t context = 0x80;
inline constexpr std::uint16_t out_bytes = 16 + 64;
}  // namespace query_dct

/// Context of a dynamically connected target.
namespace dctc {
inline constexpr field state{0x04, 4};  ///< 0: it takes connections
inline constexpr field offload_type{0x18, 4};
inline constexpr field user_index{0x28, 24};
inline constexpr field cqn{0x48, 24};
inline constexpr field rre{0x6c, 1};
inline constexpr field rwe{0x6d, 1};
inline constexpr field rae{0x6e, 1};
inline constexpr field min_rnr_nak{0x93, 5};
inline constexpr field srqn_xrqn{0xa8, 24};
inline constexpr field pd{0xc8, 24};
inline constexpr field tclass{0xe0, 8};
inline constexpr field flow_label{0xec, 20};
inline constexpr field dc_access_key{0x100, 64};
inline constexpr field mtu{0x145, 3};
inline constexpr field port{0x148, 8};
inline constexpr field pkey_index{0x150, 16};
inline constexpr field my_addr_index{0x168, 8};
inline constexpr field hop_limit{0x178, 8};
inline constexpr field dc_access_key_violation_count{0x180, 32};
}  // namespace dctc

namespace create_rmp {
inline constexpr std::uint32_t context = 0x100;
inline constexpr std::uint16_t in_bytes = (0x100 + 0x180 + 0x200) / 8;
}  // namespace create_rmp

namespace modify_rmp {
inline constexpr field bitmask_lwm{0xbf, 1};
inline constexpr std::uint32_t context = 0x100;
inline constexpr std::uint16_t in_bytes = create_rmp::in_bytes;
}  // namespace modify_rmp

namespace query_rmp {
inline constexpr std::uint32_t context = 0x100;
inline constexpr std::uint16_t out_bytes = create_rmp::in_bytes;
}  // namespace query_rmp

/// Context of a shared receive queue ("receive memory pool").
namespace rmpc {
inline constexpr field state{0x08, 4};
inline constexpr field basic_cyclic_rcv_wqe{0x20, 1};  ///< elements without a link segment
inline constexpr std::uint32_t queue = 0x180;
}  // namespace rmpc

/// Work queue, inside such a context.
namespace wq {
inline constexpr field wq_type{0x00, 4};
inline constexpr field wq_signature{0x04, 1};
inline constexpr field lwm{0x30, 16};
inline constexpr field pd{0x48, 24};
inline constexpr field dbr_addr{0x80, 64};  ///< offset into the umem of the record
inline constexpr field log_wq_stride{0x10c, 4};
inline constexpr field log_wq_sz{0x11b, 5};
inline constexpr field dbr_umem_id{0x140, 32};
inline constexpr field wq_umem_id{0x160, 32};
inline constexpr field wq_umem_offset{0x180, 64};
}  // namespace wq

namespace query_lag {
inline constexpr std::uint16_t out_bytes = 16;
}  // namespace query_lag

namespace create_mkey {
inline constexpr std::uint32_t context = 0x80;
inline constexpr std::uint32_t entries = 0x880;  ///< of a key made of others
inline constexpr field umem_id{0x320, 32};
inline constexpr field umem_offset{0x340, 64};
inline constexpr std::uint16_t in_bytes = 0x880 / 8;
}  // namespace create_mkey

/// One entry of a key that is made of others.
namespace klm {
inline constexpr field mkey{0x20, 32};
inline constexpr field address{0x40, 64};
inline constexpr std::uint32_t bytes = 16;
}  // namespace klm

/// Memory key context.
namespace mkc {
inline constexpr field free{0x01, 1};
inline constexpr field access_mode_4_2{0x03, 3};
inline constexpr field umr_en{0x10, 1};
inline constexpr field a{0x11, 1};
inline constexpr field rw{0x12, 1};
inline constexpr field rr{0x13, 1};
inline constexpr field lw{0x14, 1};
inline constexpr field lr{0x15, 1};
inline constexpr field access_mode_1_0{0x16, 2};
inline constexpr field mkey_7_0{0x38, 8};
inline constexpr field length64{0x60, 1};
inline constexpr field pd{0x68, 24};
inline constexpr field start_addr{0x80, 64};
inline constexpr field len{0xc0, 64};
inline constexpr field translations_octword_size{0x1a0, 32};  ///< how many entries
inline constexpr field log_entity_size{0x1db, 5};
}  // namespace mkc

namespace query_hca_cap {
inline constexpr std::uint32_t capability = 0x80;
inline constexpr std::uint16_t out_bytes = 16;  ///< as much of the capabilities as there is room for
}  // namespace query_hca_cap

/// General capabilities.
namespace hca_cap {
inline constexpr field vhca_id{0x30, 16};
inline constexpr field log_max_srq_sz{0x80, 8};
inline constexpr field log_max_qp_sz{0x88, 8};
inline constexpr field log_max_qp{0x9b, 5};
inline constexpr field log_max_srq{0xab, 5};
inline constexpr field log_max_cq_sz{0xc8, 8};
inline constexpr field log_max_cq{0xdb, 5};
inline constexpr field log_max_mkey{0xea, 6};
inline constexpr field log_max_eq{0xfc, 4};
inline constexpr field fixed_buffer_size{0x108, 1};  ///< keys made of others, in pieces of one size
inline constexpr field log_max_ra_req_dc{0x12a, 6};
inline constexpr field log_max_ra_res_dc{0x13a, 6};
inline constexpr field log_max_ra_req_qp{0x14a, 6};
inline constexpr field log_max_ra_res_qp{0x15a, 6};
inline constexpr field gid_table_size{0x170, 16};
inline constexpr field pkey_table_size{0x190, 16};
inline constexpr field local_ca_ack_delay{0x1ab, 5};
inline constexpr field port_type{0x1b6, 2};
inline constexpr field num_ports{0x1b8, 8};
inline constexpr field log_max_msg{0x1c3, 5};
inline constexpr field cqe_version{0x1fc, 4};
inline constexpr field compact_address_vector{0x200, 1};
inline constexpr field dct{0x21a, 1};
inline constexpr field roce{0x21d, 1};
inline constexpr field atomic{0x21e, 1};
inline constexpr field cq_oi{0x220, 1};
inline constexpr field cq_resize{0x221, 1};
inline constexpr field ud{0x23d, 1};
inline constexpr field rc{0x23f, 1};
inline constexpr field uar_4k{0x240, 1};
inline constexpr field log_pg_sz{0x258, 8};
inline constexpr field bf{0x260, 1};
inline constexpr field log_bf_reg_size{0x26b, 5};
inline constexpr field max_wqe_sz_sq{0x290, 16};
inline constexpr field max_wqe_sz_rq{0x2b0, 16};
inline constexpr field log_max_pd{0x32b, 5};
inline constexpr field log_max_rmp{0x383, 5};
inline constexpr field log_max_wq_sz{0x3db, 5};
inline constexpr field log_uar_page_sz{0x490, 16};
inline constexpr field log_max_atomic_size_qp{0x580, 8};
inline constexpr field log_max_atomic_size_dc{0x598, 8};
}  // namespace hca_cap

namespace atomic_cap {
inline constexpr field atomic_req_8b_endianness_mode{0x40, 2};
inline constexpr field supported_atomic_req_8b_endianness_mode_1{0x46, 1};
inline constexpr field atomic_operations{0x90, 16};
inline constexpr field atomic_size_qp{0xb0, 16};
inline constexpr field atomic_size_dc{0xd0, 16};
}  // namespace atomic_cap

namespace roce_cap {
inline constexpr field l3_type{0x8c, 4};
inline constexpr field roce_version{0x98, 8};
inline constexpr field r_roce_dest_udp_port{0xb0, 16};
inline constexpr field r_roce_max_src_udp_port{0xc0, 16};
inline constexpr field r_roce_min_src_udp_port{0xd0, 16};
inline constexpr field roce_address_table_size{0xf0, 16};
}  // namespace roce_cap

namespace query_roce_address {
inline constexpr field index{0x40, 16};
inline constexpr field vhca_port_num{0x5c, 4};
inline constexpr field source_l3_address{0x80, 128};
inline constexpr field source_mac{0x110, 48};
inline constexpr field roce_l3_type{0x154, 4};
inline constexpr field roce_version{0x158, 8};
inline constexpr std::uint16_t out_bytes = 16 + 32;
}  // namespace query_roce_address

}  // namespace accel::softnic::devx
