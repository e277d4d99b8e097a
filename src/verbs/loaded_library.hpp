// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace accel::verbs {

/// Whether libibverbs is there. A program that links with it does not start without it; a build with
/// ACCEL_VERBS_LOADED loads it here, once a process, and may find none.
#ifdef ACCEL_VERBS_LOADED
[[nodiscard]] bool has_library() noexcept;
#else
[[nodiscard]] constexpr bool has_library() noexcept {
    return true;
}
#endif

}  // namespace accel::verbs
