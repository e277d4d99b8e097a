// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string_view>

namespace accel::cuda {

/// The meaning of a failed call of the CUDA runtime, as a sentence: `code` is its cudaError_t.
[[nodiscard]] error call_failed(std::string_view what, int code);

/// After such a failure every further call in this process fails too.
[[nodiscard]] bool is_fatal(int code) noexcept;

}  // namespace accel::cuda
