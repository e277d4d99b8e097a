// SPDX-License-Identifier: Apache-2.0
// What the device says about itself: limits, ports, GIDs, asynchronous events.
#include "abi/dispatch.hpp"

#include <cerrno>
#include <vector>

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

namespace accel::softnic {
namespace {

constexpr std::uint64_t firmware = 28ull << 32 | 39ull << 16 | 1002;
/// As mlx5, less what is not modelled.
constexpr std::uint32_t capability_flags =
    IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID |
    IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
constexpr std::uint32_t ib_port_capabilities = 0x2651e848;

ib_uverbs_query_port_resp describe(const port& of) {
    const bool ethernet = of.link == link_layer::ethernet;
    ib_uverbs_query_port_resp answer{};
    answer.port_cap_flags = ethernet ? 0x04010000 : ib_port_capabilities;
    answer.max_msg_sz = max_message_bytes;
    answer.gid_tbl_len = gid_table_length;
    answer.pkey_tbl_len = ethernet ? 1 : pkey_table_length;
    answer.lid = of.lid;
    answer.sm_lid = ethernet ? 0 : 1;
    answer.state = of.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    answer.max_mtu = IBV_MTU_4096;
    answer.active_mtu = IBV_MTU_4096;
    answer.max_vl_num = ethernet ? 0 : 4;
    answer.subnet_timeout = ethernet ? 0 : 18;
    answer.active_width = 2;   // 4X
    answer.active_speed = 64;  // HDR: 50 Gb/s a lane
    answer.phys_state = of.up ? 5 : 3;
    answer.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    answer.flags = ethernet ? IBV_QPF_GRH_REQUIRED : 0;
    return answer;
}

int query_port(context& target, command& request) {
    const port* found = target.own_device().find_port(request.in<std::uint8_t>(UVERBS_ATTR_QUERY_PORT_PORT_NUM));
    if (found == nullptr) return EINVAL;
    ib_uverbs_query_port_resp_ex answer{};
    answer.legacy_resp = describe(*found);
    request.out(UVERBS_ATTR_QUERY_PORT_RESP, answer);
    return 0;
}

ib_uverbs_gid_entry describe(const port& of, std::size_t index) {
    ib_uverbs_gid_entry entry{};
    std::memcpy(entry.gid, of.gids[index].bytes.data(), sizeof entry.gid);
    entry.gid_index = static_cast<std::uint32_t>(index);
    entry.port_num = of.address.port;
    entry.gid_type = static_cast<std::uint32_t>(of.gids[index].type);
    return entry;
}

int query_gid_entry(context& target, command& request) {
    const port* found = target.own_device().find_port(request.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_PORT));
    const auto index = request.in<std::uint32_t>(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
    if (found == nullptr || index >= gid_table_length) return EINVAL;
    if (index >= found->gids.size()) return ENODATA;
    request.out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, describe(*found, index));
    return 0;
}

int query_gid_table(context& target, command& request) {
    const auto stride = request.in<std::uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
    if (stride < sizeof(ib_uverbs_gid_entry) || stride > 4096) return EINVAL;
    const std::size_t room = request.out_size(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES) / stride;
    std::vector<std::byte> table;
    std::uint64_t count = 0;
    for (const port& each : target.own_device().ports()) {
        for (std::size_t index = 0; index < each.gids.size(); ++index, ++count) {
            if (count == room) return EINVAL;
            const auto entry = describe(each, index);
            table.resize((count + 1) * stride);
            std::memcpy(table.data() + count * stride, &entry, sizeof entry);
        }
    }
    request.write(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, table);
    request.out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
    return 0;
}

int allocate_asynchronous(context& target, command& request) {
    auto pipe = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    request.out_descriptor(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, pipe->read_descriptor());
    target.asynchronous_pipes[pipe->read_descriptor()] = pipe;
    target.adapter().state.listeners.push_back({target.device_index(), std::move(pipe), nullptr});
    return 0;
}

ib_uverbs_query_device_resp describe(device& of) {
    ib_uverbs_query_device_resp answer{};
    answer.fw_ver = firmware;
    answer.node_guid = htobe64(of.guid());
    answer.sys_image_guid = htobe64(of.guid());
    answer.max_mr_size = ~0ull;
    answer.page_size_cap = 0xfffffffffffff000ull;
    answer.vendor_id = 0x2c9;
    answer.vendor_part_id = 4129;
    answer.max_qp = qpn_space - first_qpn;
    answer.max_qp_wr = limits::max_work_requests;
    answer.device_cap_flags = capability_flags;
    answer.max_sge = limits::max_segments;
    answer.max_sge_rd = limits::max_segments;
    answer.max_cq = 1 << 20;
    answer.max_cqe = limits::max_cqe;
    answer.max_mr = 1 << 24;
    answer.max_mw = 1 << 24;
    answer.max_pd = 1 << 24;
    answer.max_qp_rd_atom = limits::max_rd_atomic;
    answer.max_res_rd_atom = limits::max_rd_atomic * 4096;
    answer.max_qp_init_rd_atom = limits::max_rd_atomic;
    answer.atomic_cap = IBV_ATOMIC_HCA;
    answer.max_ah = 1 << 30;
    answer.max_srq = 1 << 20;
    answer.max_srq_wr = limits::max_srq_work_requests;
    answer.max_srq_sge = 31;
    answer.max_pkeys = pkey_table_length;
    answer.local_ca_ack_delay = 16;
    answer.phys_port_cnt = static_cast<std::uint8_t>(of.ports().size());
    return answer;
}

int query_device(context& target, command& request) {
    request.out(UVERBS_ATTR_CORE_OUT, describe(target.own_device()));
    return 0;
}

int query_device_ex(context& target, command& request) {
    ib_uverbs_ex_query_device_resp answer{};
    answer.base = describe(target.own_device());
    answer.timestamp_mask = ~0ull;
    answer.hca_core_clock = 1'000'000;  // kHz: the timestamps of CQEs are nanoseconds
    answer.response_length =
        static_cast<std::uint32_t>(std::min(request.out_size(UVERBS_ATTR_CORE_OUT), sizeof answer));
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    mlx5_ib_query_device_resp driver{};
    driver.response_length = static_cast<std::uint32_t>(std::min(request.out_size(UVERBS_ATTR_UHW_OUT), sizeof driver));
    request.out(UVERBS_ATTR_UHW_OUT, driver);
    return 0;
}

constexpr attribute_rule port_rules[]{{UVERBS_ATTR_QUERY_PORT_PORT_NUM, true, 1},
                                      {UVERBS_ATTR_QUERY_PORT_RESP, true, 0}};
constexpr attribute_rule gid_entry_rules[]{{UVERBS_ATTR_QUERY_GID_ENTRY_PORT, true, 4},
                                           {UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, true, 4},
                                           {UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, false, 0},
                                           {UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, true, 0}};
constexpr attribute_rule gid_table_rules[]{{UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, true, 8},
                                           {UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, false, 0},
                                           {UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, true, 0},
                                           {UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, true, 0}};
constexpr attribute_rule asynchronous_rules[]{{UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, true, 0}};

constexpr method_row device_method_rows[]{
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, "QUERY_PORT", port_rules, query_port},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, "QUERY_GID_ENTRY", gid_entry_rules, query_gid_entry},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, "QUERY_GID_TABLE", gid_table_rules, query_gid_table},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, "ASYNC_EVENT_ALLOC", asynchronous_rules,
     allocate_asynchronous},
};

constexpr write_row device_write_rows[]{
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "QUERY_DEVICE", 0, query_device},
    {IB_USER_VERBS_CMD_QUERY_DEVICE | IB_USER_VERBS_CMD_FLAG_EXTENDED, "QUERY_DEVICE_EX", 0, query_device_ex},
};

}  // namespace

std::span<const method_row> device_methods() {
    return device_method_rows;
}
std::span<const write_row> device_writes() {
    return device_write_rows;
}

}  // namespace accel::softnic
