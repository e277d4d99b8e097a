// SPDX-License-Identifier: Apache-2.0
// Doorbell pages, which the mlx5 driver allocates one by one.
#include "abi/dispatch.hpp"

#include <cerrno>

#include <rdma/mlx5_user_ioctl_cmds.h>

namespace accel::softnic {
namespace {

int allocate_uar(context& target, command& request) {
    const uar_page& page = target.adapter().add_uar(target.command_file());
    const std::uint32_t handle = target.next_handle();
    target.uars[handle] = page.number();
    request.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, std::uint64_t{page.number()} * uar_page::bytes);
    request.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, static_cast<std::uint32_t>(uar_page::bytes));
    request.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page.number());
    request.out_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
    return 0;
}

int destroy_uar(context& target, command& request) {
    const auto found = target.uars.find(request.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE));
    if (found == target.uars.end()) return EINVAL;
    target.adapter().remove_uar(found->second);
    target.uars.erase(found);
    return 0;
}

constexpr attribute_rule allocate_rules[]{{MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, true, 0},
                                          {MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, true, 4},
                                          {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, true, 8},
                                          {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, true, 4},
                                          {MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, true, 4}};
constexpr attribute_rule uar_destroy_rules[]{{MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, true, 0}};

constexpr method_row uar_method_rows[]{
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "UAR_ALLOC", allocate_rules, allocate_uar},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "UAR_DESTROY", uar_destroy_rules, destroy_uar},
};

}  // namespace

std::span<const method_row> uar_methods() {
    return uar_method_rows;
}

}  // namespace accel::softnic
