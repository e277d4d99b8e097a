// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace accel::faults {

/// From now on this process can have so many threads more than it has; `pthread_create` fails beyond, as where a
/// cgroup's pids.max is reached. 0: it starts none, even where others end.
void allow_more_threads(std::size_t count) noexcept;
void allow_all_threads() noexcept;
/// How often a thread was refused since `allow_more_threads`.
[[nodiscard]] std::size_t refused_threads() noexcept;

}  // namespace accel::faults
