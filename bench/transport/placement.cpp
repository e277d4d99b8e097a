// SPDX-License-Identifier: Apache-2.0
#include "placement.hpp"

#include <cstddef>

namespace accel::bench {

placement::placement() noexcept {
    CPU_ZERO(&all_);
    CPU_ZERO(&clients_);
    CPU_ZERO(&servers_);
    sched_getaffinity(0, sizeof all_, &all_);
    const int half = CPU_COUNT(&all_) / 2;
    int seen = 0;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &all_)) continue;
        if (seen++ < half) {
            CPU_SET(core, &clients_);
        } else {
            CPU_SET(core, &servers_);
        }
    }
}

void placement::run_on(const cpu_set_t& cores) const noexcept {
    if (can_pin()) sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace accel::bench
