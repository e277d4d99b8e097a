// SPDX-License-Identifier: Apache-2.0
// Protection domains, memory regions, address handles.
#include "abi/dispatch.hpp"
#include "dma/guarded.hpp"
#include "transport/memory.hpp"

#include <algorithm>
#include <cerrno>

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

namespace accel::softnic {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint32_t known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB |
                                       IBV_ACCESS_OPTIONAL_RANGE;

int allocate_pd(context& target, command& request) {
    const std::uint32_t handle = target.next_handle();
    target.pds[handle] = true;
    request.out(UVERBS_ATTR_CORE_OUT, ib_uverbs_alloc_pd_resp{handle});
    request.out(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{handle});
    return 0;
}

int destroy_pd(context& target, command& request) {
    const std::uint32_t handle = request.handle(UVERBS_ATTR_DESTROY_PD_HANDLE);
    if (!target.pds.contains(handle)) return EINVAL;
    if (target.pd_in_use(handle)) return EBUSY;
    target.pds.erase(handle);
    return 0;
}

int check_access(std::uint32_t flags) {
    constexpr std::uint32_t needs_local_write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if ((flags & ~known_access) != 0) return EOPNOTSUPP;
    const bool bad = (flags & needs_local_write) != 0 && (flags & IBV_ACCESS_LOCAL_WRITE) == 0;
    return bad ? EINVAL : 0;
}

/// The kernel pins the pages, and so finds out whether they exist.
bool is_mapped(std::uint64_t start, std::uint64_t length) {
    constexpr std::uint64_t chunk_pages = 1 << 16;
    static unsigned char residence[chunk_pages];  // under the nic's lock
    const std::uint64_t end = start + length;
    for (std::uint64_t at = start & ~(page - 1); at < end; at += chunk_pages * page) {
        const std::uint64_t size = std::min(chunk_pages * page, end - at);
        if (::mincore(reinterpret_cast<void*>(at), size, residence) != 0) return false;
    }
    return true;
}

/// Addresses may be taken without having memory: a GPU's are.
bool can_be_read(std::uint64_t start, std::uint64_t length) {
    std::byte probe{};
    return guarded::copy(&probe, reinterpret_cast<const void*>(start), 1) &&
           guarded::copy(&probe, reinterpret_cast<const void*>(start + length - 1), 1);
}

dma_claim find_engine(context& target, std::uint64_t start, std::uint64_t length) {
    auto claim = target.adapter().state.dma.for_range(start, length);
    if (claim.engine != host_dma()) return claim;
    if (!is_mapped(start, length) || !can_be_read(start, length)) return {nullptr, EFAULT};
    return claim;
}

int check_range(std::uint64_t start, std::uint64_t length, std::uint64_t iova) {
    if (length == 0 || start + length < start || iova + length < iova) return EINVAL;
    return (start & (page - 1)) == (iova & (page - 1)) ? 0 : EINVAL;
}

/// Returns the handle.
std::uint32_t add_region(context& target, memory_region region, std::uint32_t& key) {
    const std::uint32_t handle = target.next_handle();
    key = target.own_device().regions.add(std::move(region)).key;
    target.regions[handle] = key;
    return handle;
}

int register_memory(context& target, command& request) {
    const auto in = request.in<ib_uverbs_reg_mr>(UVERBS_ATTR_CORE_IN);
    if (!target.pds.contains(in.pd_handle)) return EINVAL;
    if (const int problem = check_access(in.access_flags); problem != 0) return problem;
    if (const int problem = check_range(in.start, in.length, in.hca_va); problem != 0) return problem;
    auto place = find_engine(target, in.start, in.length);
    if (place.problem != 0) return place.problem;
    ib_uverbs_reg_mr_resp answer{};
    answer.mr_handle = add_region(
        target, {0, in.pd_handle, in.hca_va, in.length, in.start, in.access_flags, false, std::move(place.engine)},
        answer.lkey);
    answer.rkey = answer.lkey;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

int reregister_memory(context& target, command& request) {
    const auto in = request.in<ib_uverbs_rereg_mr>(UVERBS_ATTR_CORE_IN);
    const auto found = target.regions.find(in.mr_handle);
    if (found == target.regions.end()) return EINVAL;
    memory_region changed = *target.own_device().regions.find(found->second);
    if (changed.windows != 0) return EBUSY;
    if ((in.flags & IBV_REREG_MR_CHANGE_PD) != 0) {
        if (!target.pds.contains(in.pd_handle)) return EINVAL;
        changed.pd = in.pd_handle;
    }
    if ((in.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
        if (const int problem = check_access(in.access_flags); problem != 0) return problem;
        changed.access = in.access_flags;
    }
    if ((in.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
        if (const int problem = check_range(in.start, in.length, in.hca_va); problem != 0) return problem;
        auto place = find_engine(target, in.start, in.length);
        if (place.problem != 0) return place.problem;
        changed.base = in.start;
        changed.iova = in.hca_va;
        changed.length = in.length;
        changed.engine = std::move(place.engine);
    }
    memory::quiesce(target.adapter().state, *target.own_device().regions.find(found->second));
    *target.own_device().regions.find(found->second) = changed;
    ib_uverbs_rereg_mr_resp answer{};
    answer.lkey = answer.rkey = changed.key;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

int register_dmabuf(context& target, command& request) {
    const std::uint32_t pd = request.handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE);
    const auto offset = request.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_OFFSET);
    const auto length = request.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_LENGTH);
    const auto iova = request.in<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_IOVA);
    const auto flags = request.in<std::uint32_t>(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS);
    const int descriptor = request.descriptor(UVERBS_ATTR_REG_DMABUF_MR_FD);
    if (!target.pds.contains(pd)) return EINVAL;
    if (const int problem = check_access(flags); problem != 0) return problem;
    if (const int problem = check_range(offset, length, iova); problem != 0) return problem;
    const bool writable = (flags & IBV_ACCESS_LOCAL_WRITE) != 0;
    if (!target.adapter().state.config.dmabuf) return EOPNOTSUPP;
    auto place = target.adapter().state.dma.for_dmabuf({descriptor, offset, length, iova}, writable);
    if (place.problem != 0) return place.problem;
    std::uint32_t key = 0;
    const std::uint32_t handle =
        add_region(target, {0, pd, iova, length, offset, flags, false, std::move(place.engine)}, key);
    request.out_handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, handle);
    request.out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, key);
    request.out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, key);
    return 0;
}

int destroy_region(context& target, command& request) {
    const auto found = target.regions.find(request.handle(UVERBS_ATTR_DESTROY_MR_HANDLE));
    if (found == target.regions.end()) return EINVAL;
    if (target.own_device().regions.find(found->second)->windows != 0) return EBUSY;
    memory::quiesce(target.adapter().state, *target.own_device().regions.find(found->second));
    target.own_device().regions.remove(found->second);
    target.regions.erase(found);
    return 0;
}

/// A window has no memory before a work request binds it.
int allocate_window(context& target, command& request) {
    const auto in = request.in<ib_uverbs_alloc_mw>(UVERBS_ATTR_CORE_IN);
    if (!target.pds.contains(in.pd_handle)) return EINVAL;
    if (in.mw_type != IBV_MW_TYPE_1 && in.mw_type != IBV_MW_TYPE_2) return EINVAL;
    memory_region window;
    window.pd = in.pd_handle;
    window.window = in.mw_type == IBV_MW_TYPE_1 ? window_type::type_1 : window_type::type_2;
    ib_uverbs_alloc_mw_resp answer{};
    answer.mw_handle = target.next_handle();
    answer.rkey = target.own_device().regions.add(std::move(window)).key;
    target.windows[answer.mw_handle] = answer.rkey;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    return 0;
}

int destroy_window(context& target, command& request) {
    return target.destroy_window(request.handle(UVERBS_ATTR_DESTROY_MW_HANDLE)) ? 0 : EINVAL;
}

/// RoCE: the driver wants the MAC address behind a GID.
int create_ah(context& target, command& request) {
    const auto in = request.in<ib_uverbs_create_ah>(UVERBS_ATTR_CORE_IN);
    if (!target.pds.contains(in.pd_handle)) return EINVAL;
    const port* from = target.own_device().find_port(in.attr.port_num);
    if (from == nullptr || (in.attr.is_global != 0 && in.attr.grh.sgid_index >= from->gids.size())) return EINVAL;
    mlx5_ib_create_ah_resp driver{};
    driver.response_length = sizeof driver;
    if (from->link == link_layer::ethernet) {
        gid_bytes gid;
        std::copy(std::begin(in.attr.grh.dgid), std::end(in.attr.grh.dgid), gid.begin());
        const auto to = target.adapter().state.find_gid(gid);
        if (!to) return EHOSTUNREACH;
        const auto mac = mac_of(*to);
        std::copy(mac.begin(), mac.end(), std::begin(driver.dmac));
    }
    const std::uint32_t handle = target.next_handle();
    target.ahs[handle] = in.pd_handle;
    ib_uverbs_create_ah_resp answer{};
    answer.ah_handle = handle;
    request.out(UVERBS_ATTR_CORE_OUT, answer);
    request.out(UVERBS_ATTR_UHW_OUT, driver);
    return 0;
}

int destroy_ah(context& target, command& request) {
    return target.ahs.erase(request.handle(UVERBS_ATTR_DESTROY_AH_HANDLE)) != 0 ? 0 : EINVAL;
}

constexpr attribute_rule pd_rules[]{{UVERBS_ATTR_DESTROY_PD_HANDLE, true, 0}};
constexpr attribute_rule mr_rules[]{{UVERBS_ATTR_DESTROY_MR_HANDLE, true, 0}};
constexpr attribute_rule mw_rules[]{{UVERBS_ATTR_DESTROY_MW_HANDLE, true, 0}};
constexpr attribute_rule ah_rules[]{{UVERBS_ATTR_DESTROY_AH_HANDLE, true, 0}};
constexpr attribute_rule dmabuf_rules[]{
    {UVERBS_ATTR_REG_DMABUF_MR_HANDLE, true, 0},       {UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, true, 0},
    {UVERBS_ATTR_REG_DMABUF_MR_OFFSET, true, 8},       {UVERBS_ATTR_REG_DMABUF_MR_LENGTH, true, 8},
    {UVERBS_ATTR_REG_DMABUF_MR_IOVA, true, 8},         {UVERBS_ATTR_REG_DMABUF_MR_FD, true, 0},
    {UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, true, 4}, {UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, true, 4},
    {UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, true, 4}};

constexpr method_row memory_method_rows[]{
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, "PD_DESTROY", pd_rules, destroy_pd},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, "MR_DESTROY", mr_rules, destroy_region},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, "REG_DMABUF_MR", dmabuf_rules, register_dmabuf},
    {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, "MW_DESTROY", mw_rules, destroy_window},
    {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, "AH_DESTROY", ah_rules, destroy_ah},
};

constexpr write_row memory_write_rows[]{
    {IB_USER_VERBS_CMD_ALLOC_PD, "ALLOC_PD", 0, allocate_pd},
    {IB_USER_VERBS_CMD_REG_MR, "REG_MR", sizeof(ib_uverbs_reg_mr), register_memory},
    {IB_USER_VERBS_CMD_REREG_MR, "REREG_MR", sizeof(ib_uverbs_rereg_mr), reregister_memory},
    {IB_USER_VERBS_CMD_ALLOC_MW, "ALLOC_MW", sizeof(ib_uverbs_alloc_mw), allocate_window},
    {IB_USER_VERBS_CMD_CREATE_AH, "CREATE_AH", sizeof(ib_uverbs_create_ah), create_ah},
};

}  // namespace

std::span<const method_row> memory_methods() {
    return memory_method_rows;
}
std::span<const write_row> memory_writes() {
    return memory_write_rows;
}

}  // namespace accel::softnic
