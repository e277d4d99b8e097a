// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/shared_memory/region.hpp"

#include <accel_transport/context.hpp>

#include <cstdint>
#include <memory>
#include <string_view>

namespace accel::examples::serving::shared_memory {

/// Says whether this build and this machine have GPUs whose memory can be shared; `unsupported` says what is missing.
/// May block for seconds.
[[nodiscard]] result<void> check_cuda();

/// GPU memory of another process: `handle` is its cudaIpcMemHandle_t, 64 bytes. `invalid_argument`: a handle that the
/// driver refuses, or memory that is shorter; `unsupported`: this build is without CUDA. May block.
[[nodiscard]] result<std::shared_ptr<region>> open_cuda_region(std::string_view handle, std::int64_t device,
                                                               std::uint64_t bytes, std::unique_ptr<claim> share,
                                                               context& lent_by);

}  // namespace accel::examples::serving::shared_memory
