// SPDX-License-Identifier: Apache-2.0
#include "core/handle.hpp"

#include <cstdio>
#include <cstdlib>

namespace accel::core {

void end_moved_from(const char* type) noexcept {
    std::fprintf(stderr, "accel: a %s was used after it had been moved from\n", type);
    std::abort();
}

}  // namespace accel::core
