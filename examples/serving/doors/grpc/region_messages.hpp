// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"
#include "serving/doors/shared_memory/region_table.hpp"

#include <accel_transport/status.hpp>

#include <span>
#include <string>

namespace accel::examples::serving::wire {

/// A SystemSharedMemoryRegisterRequest or CudaSharedMemoryRegisterRequest. Requests for a status, and to unregister,
/// have the name alone. `invalid_argument`: it is malformed, or a text is too long.
[[nodiscard]] result<shared_memory::description> read_region_message(shared_memory::memory kind,
                                                                     std::span<const slice> slices);

/// SystemSharedMemoryStatusResponse, CudaSharedMemoryStatusResponse.
[[nodiscard]] std::string region_status_message(shared_memory::memory kind,
                                                std::span<const shared_memory::description> regions);

}  // namespace accel::examples::serving::wire
