// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"

#include <algorithm>

namespace accel::perf {

const char* poll_name(poll_mode mode) noexcept {
    switch (mode) {
        case poll_mode::busy:
            return "busy";
        case poll_mode::adaptive:
            return "adaptive";
        case poll_mode::block:
            return "block";
    }
    return "?";
}

std::vector<load> plan(const settings& chosen) {
    constexpr std::uint64_t default_count = 10'000;
    constexpr std::uint64_t default_payload = std::uint64_t{4} << 30;
    constexpr std::uint64_t fewest = 100;

    std::vector<load> loads;
    for (const std::size_t size : chosen.sizes) {
        load each;
        each.request_bytes = size;
        each.response_bytes = chosen.response_bytes.value_or(size);
        const std::uint64_t longest = std::max<std::uint64_t>({each.request_bytes, each.response_bytes, 1});
        each.count = chosen.count.value_or(std::clamp(default_payload / longest, fewest, default_count));
        each.warm_up = chosen.warm_up.value_or(std::clamp<std::uint64_t>(each.count / 10, 1, 1'000));
        each.depth = chosen.depth;
        each.check = chosen.check;
        loads.push_back(each);
    }
    return loads;
}

}  // namespace accel::perf
