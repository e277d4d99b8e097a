// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/layout.hpp>
#include <accel_transport/status.hpp>

#include <string_view>

#include <infiniband/verbs.h>

namespace accel::verbs {

/// An error of a verb that failed with `native` (an errno), in a sentence that says what to do.
[[nodiscard]] error verb_failed(std::string_view what, int native);
/// The same where memory is registered: the usual reason is the limit of locked memory.
[[nodiscard]] error registration_failed(std::size_t size_bytes, int native);

/// The same failure as an mlx5 adapter reports it.
[[nodiscard]] mlx5::syndrome syndrome_of(ibv_wc_status native) noexcept;
/// The same failure as libibverbs reports it.
[[nodiscard]] ibv_wc_status native_of(mlx5::syndrome failure) noexcept;
/// The meaning of a failed completion for its link.
[[nodiscard]] status meaning(mlx5::syndrome failure) noexcept;

}  // namespace accel::verbs
