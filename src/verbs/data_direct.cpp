// SPDX-License-Identifier: Apache-2.0
#include "verbs/data_direct.hpp"

#include "verbs/mlx5_library.hpp"

#include <array>
#include <cerrno>

namespace accel::verbs {
namespace {

using find_path = int(ibv_context*, char*, std::size_t);
using register_dma_buf = ibv_mr*(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int, int);

/// MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT of rdma-core 54; older headers do not have it.
constexpr int data_direct_flag = 1;

}  // namespace

bool has_data_direct(ibv_context& device) noexcept {
    auto* const find = mlx5_function<find_path>("mlx5dv_get_data_direct_sysfs_path");
    std::array<char, 4096> path{};
    return find != nullptr && find(&device, path.data(), path.size()) == 0;
}

ibv_mr* register_data_direct(ibv_pd& domain, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
                             int dma_buf, unsigned access) noexcept {
    auto* const call = mlx5_function<register_dma_buf>("mlx5dv_reg_dmabuf_mr");
    if (call == nullptr) {
        errno = ENOSYS;
        return nullptr;
    }
    return call(&domain, offset, bytes, address, dma_buf, static_cast<int>(access), data_direct_flag);
}

}  // namespace accel::verbs
