// SPDX-License-Identifier: Apache-2.0
// Commands about the device as a whole: capabilities, RoCE addresses.
#include "devx/commands.hpp"

#include <bit>

namespace accel::softnic::devx {
namespace {

/// Bit 0 of op_mod: the values in force, or the greatest possible. They are the same here.
enum class capability_group : std::uint16_t { general = 0, odp = 2, atomic = 3, roce = 4, general_2 = 0x20 };

constexpr std::uint32_t log2_of(std::uint32_t value) {
    return static_cast<std::uint32_t>(std::bit_width(value) - 1);
}

/// Sends one value after another into the part of the answer that holds capabilities.
class capabilities {
  public:
    explicit capabilities(mailbox_out& out) : out_(out) {}
    void set(field of, std::uint64_t value) { out_.set(of.at(query_hca_cap::capability), value); }

  private:
    mailbox_out& out_;
};

void set_limits(capabilities& to) {
    to.set(hca_cap::log_max_srq_sz, log2_of(limits::max_srq_work_requests + 1));
    to.set(hca_cap::log_max_qp_sz, log2_of(limits::max_work_requests));
    to.set(hca_cap::log_max_qp, 16);
    to.set(hca_cap::log_max_srq, 20);
    to.set(hca_cap::log_max_cq_sz, log2_of(limits::max_cqe + 1));
    to.set(hca_cap::log_max_cq, 20);
    to.set(hca_cap::log_max_mkey, 24);
    to.set(hca_cap::log_max_eq, 4);
    to.set(hca_cap::log_max_ra_req_qp, log2_of(limits::max_rd_atomic));
    to.set(hca_cap::log_max_ra_res_qp, log2_of(limits::max_rd_atomic));
    to.set(hca_cap::log_max_ra_req_dc, log2_of(limits::max_rd_atomic));
    to.set(hca_cap::log_max_ra_res_dc, log2_of(limits::max_rd_atomic));
    to.set(hca_cap::log_max_msg, log2_of(max_message_bytes));
    to.set(hca_cap::log_max_pd, 24);
    to.set(hca_cap::max_wqe_sz_sq, 1024);
    to.set(hca_cap::max_wqe_sz_rq, 512);
    to.set(hca_cap::log_max_atomic_size_qp, 3);
    to.set(hca_cap::log_max_atomic_size_dc, 3);
    to.set(hca_cap::log_max_rmp, 20);
    to.set(hca_cap::log_max_wq_sz, log2_of(limits::max_work_requests));
}

/// Tables of 8 GIDs and 128 keys have the code 0 in `gid_table_size` and `pkey_table_size`.
void set_ports(capabilities& to, device& of) {
    static_assert(gid_table_length == 8 && pkey_table_length == 128);
    const bool ethernet = of.ports().front().link == link_layer::ethernet;
    to.set(hca_cap::vhca_id, static_cast<std::uint64_t>(of.index()));
    to.set(hca_cap::port_type, ethernet ? 1 : 0);
    to.set(hca_cap::num_ports, of.ports().size());
    to.set(hca_cap::local_ca_ack_delay, 16);
    to.set(hca_cap::roce, ethernet ? 1 : 0);
}

void set_general(capabilities& to, device& of) {
    set_limits(to);
    set_ports(to, of);
    for (const field each :
         {hca_cap::atomic, hca_cap::cq_oi, hca_cap::cq_resize, hca_cap::ud, hca_cap::rc, hca_cap::uar_4k, hca_cap::bf,
          hca_cap::dct, hca_cap::compact_address_vector, hca_cap::fixed_buffer_size})
        to.set(each, 1);
    to.set(hca_cap::cqe_version, 1);
    to.set(hca_cap::log_pg_sz, 12);
    to.set(hca_cap::log_uar_page_sz, 0);  // in units of 4096 bytes
    to.set(hca_cap::log_bf_reg_size, 9);
}

/// Results of 8 bytes are in the host's order, those of 4 in the network's.
void set_atomic(capabilities& to) {
    constexpr std::uint32_t compare_swap = 1;
    constexpr std::uint32_t fetch_add = 2;
    constexpr std::uint32_t masked = 4 | 8;  // both
    constexpr std::uint32_t sizes = 4 | 8;
    to.set(atomic_cap::atomic_req_8b_endianness_mode, 1);
    to.set(atomic_cap::supported_atomic_req_8b_endianness_mode_1, 1);
    to.set(atomic_cap::atomic_operations, compare_swap | fetch_add | masked);
    to.set(atomic_cap::atomic_size_qp, sizes);
    to.set(atomic_cap::atomic_size_dc, sizes);
}

void set_roce(capabilities& to) {
    constexpr std::uint32_t grh = 1;
    constexpr std::uint32_t ipv4_and_6 = 6;
    constexpr std::uint32_t version_1_and_2 = 5;
    to.set(roce_cap::l3_type, grh | ipv4_and_6);
    to.set(roce_cap::roce_version, version_1_and_2);
    to.set(roce_cap::r_roce_dest_udp_port, 4791);
    to.set(roce_cap::r_roce_min_src_udp_port, 0xc000);
    to.set(roce_cap::r_roce_max_src_udp_port, 0xffff);
    to.set(roce_cap::roce_address_table_size, gid_table_length);
}

/// Groups with nothing but zeroes say that the device has nothing of the kind.
result query_capabilities(call& what) {
    capabilities to(what.out);
    switch (static_cast<capability_group>(what.in.get(header::op_mod) >> 1)) {
        case capability_group::general:
            set_general(to, what.owner.own_device());
            return {};
        case capability_group::atomic:
            set_atomic(to);
            return {};
        case capability_group::roce:
            set_roce(to);
            return {};
        case capability_group::odp:
        case capability_group::general_2:
            return {};
    }
    return {status::bad_parameter, reason::unknown_capability};
}

void set_address(mailbox_out& out, const port& of, const gid_entry& entry) {
    constexpr std::uint32_t version_2 = 2;
    const bool second = entry.type == gid_type::roce_v2;
    const auto mac = mac_of(of.address);
    out.set_bytes(query_roce_address::source_l3_address, std::as_bytes(std::span(entry.bytes)));
    out.set_bytes(query_roce_address::source_mac, std::as_bytes(std::span(mac)));
    out.set(query_roce_address::roce_version, second ? version_2 : 0);
}

/// Places of the table behind the last GID are empty.
result query_address(call& what) {
    const std::uint32_t number = what.in.get32(query_roce_address::vhca_port_num);
    const port* from = what.owner.own_device().find_port(number == 0 ? 1 : number);
    const std::uint32_t index = what.in.get32(query_roce_address::index);
    if (from == nullptr || index >= gid_table_length) return {status::bad_index, reason::no_such_index};
    if (from->link != link_layer::ethernet) return {status::bad_parameter, reason::not_ethernet};
    if (index < from->gids.size()) set_address(what.out, *from, from->gids[index]);
    return {};
}

/// Also what QUERY_LAG does: ports are not bonded, which is all zeroes.
result do_nothing(call&) {
    return {};
}

constexpr command_row general_rows[]{
    {opcode::query_hca_cap, command_class::general, "QUERY_HCA_CAP", header::bytes, query_hca_cap::out_bytes,
     query_capabilities},
    {opcode::query_roce_address, command_class::general, "QUERY_ROCE_ADDRESS", header::bytes,
     query_roce_address::out_bytes, query_address},
    {opcode::query_lag, command_class::general, "QUERY_LAG", header::bytes, query_lag::out_bytes, do_nothing},
    {opcode::nop, command_class::general, "NOP", header::bytes, header::bytes, do_nothing},
};

}  // namespace

std::span<const command_row> general_commands() {
    return general_rows;
}

}  // namespace accel::softnic::devx
