// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/net/unique_fd.hpp"
#include "staging/accelerator.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>

/// GPU memory that processes of one host share, by the CUDA driver's virtual memory management. A descriptor names it,
/// which passes over a Unix socket and reaches nobody else. The driver counts who has it: memory that its owner has
/// released, or whose owner is dead, lives as long as another process maps it. (With `cudaIpcMemHandle_t` it would be
/// undefined what such a process reads, and anyone of the same user could open the handle.) The caller has made the
/// device the current one.
namespace accel::cuda::shared_memory {

struct mapping {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< as wanted, rounded up to what the device maps at once
};

/// Not cleared. `unsupported`: this GPU or driver shares no memory.
[[nodiscard]] result<mapping> create(int ordinal, std::size_t bytes);
/// For other processes; closed when a program is executed. `data` as `create` gave it.
[[nodiscard]] result<core::unique_fd> export_descriptor(const std::byte* data);
/// Another process's memory, for this device. Errors: it is something else, or has fewer bytes.
[[nodiscard]] result<mapping> map(int ordinal, int fd, std::size_t bytes, core::shared_of whose);
/// Takes memory that `create` or `map` gave.
void unmap(std::byte* data, std::size_t bytes) noexcept;

}  // namespace accel::cuda::shared_memory
