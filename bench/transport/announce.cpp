// SPDX-License-Identifier: Apache-2.0
#include "side.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace accel::bench {

void announce(const std::string& endpoint) {
    fmt::print("serving {}\n", endpoint);
    std::fflush(stdout);
}

}  // namespace accel::bench
