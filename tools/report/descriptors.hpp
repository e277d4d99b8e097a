// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::report {

/// Raises this process's limit of open descriptors (RLIMIT_NOFILE) as far as it may itself, and says what it is now.
std::uint64_t raise_descriptor_limit() noexcept;

}  // namespace accel::report
