// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::softnic::testing {

/// How often this thread has called operator new.
std::uint64_t allocations();

}  // namespace accel::softnic::testing
