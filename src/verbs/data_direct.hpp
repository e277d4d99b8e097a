// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/handles.hpp"

#include <cstddef>
#include <cstdint>

namespace accel::verbs {

/// Devices with a second PCIe function next to a GPU, over which they read its memory without the detour over
/// the host's root complex ("data direct": ConnectX-8, rdma-core 54, Linux 6.12). Only for memory that the
/// device reads: what it writes that way may become visible after its completion, which comes by the first.

[[nodiscard]] bool has_data_direct(ibv_context& device) noexcept;

/// As `ibv_reg_dmabuf_mr`; null with errno.
[[nodiscard]] ibv_mr* register_data_direct(ibv_pd& domain, std::uint64_t offset, std::size_t bytes,
                                           std::uint64_t address, int dma_buf, unsigned access) noexcept;

}  // namespace accel::verbs
