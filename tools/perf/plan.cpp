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

const char* arrivals_name(arrivals how) noexcept {
    return how == arrivals::poisson ? "poisson" : "constant";
}

namespace {

constexpr std::uint64_t default_count = 10'000;
constexpr std::uint64_t default_payload = std::uint64_t{4} << 30;
constexpr std::uint64_t fewest = 100;
constexpr std::uint32_t open_loop_depth = 64;
constexpr std::uint64_t open_loop_payload = std::uint64_t{256} << 20;

std::uint64_t default_warm_up(std::uint64_t count) {
    return std::clamp<std::uint64_t>(count / 10, 1, 1'000);
}

/// Of an open loop: enough for a server that stalls for a while.
std::uint32_t default_depth(const settings& chosen, std::uint64_t longest) {
    if (chosen.rate <= 0) return 1;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(open_loop_payload / longest, 1, open_loop_depth));
}

/// Of requests of this size, or of the mix.
load load_of(const settings& chosen, std::size_t request_bytes) {
    load out;
    out.request_bytes = request_bytes;
    out.echoes_size = !chosen.response_bytes.has_value();
    out.response_bytes = chosen.response_bytes.value_or(request_bytes);
    const std::uint64_t longest = std::max<std::uint64_t>({out.request_bytes, out.response_bytes, 1});
    const std::uint64_t usual = std::clamp(default_payload / longest, fewest, default_count);
    const std::uint64_t unbounded = chosen.duration ? ~std::uint64_t{0} : usual;
    out.count = chosen.count.value_or(unbounded);
    out.warm_up = chosen.warm_up.value_or(default_warm_up(std::min(out.count, usual)));
    out.depth = chosen.depth.value_or(default_depth(chosen, longest));
    out.clients = chosen.clients;
    out.rate = chosen.rate;
    out.arriving = chosen.arriving;
    out.duration = chosen.duration;
    out.check = chosen.check;
    return out;
}

}  // namespace

std::vector<load> plan(const settings& chosen) {
    std::vector<load> loads;
    if (chosen.mix) {
        loads.push_back(load_of(chosen, chosen.mix->longest()));
        loads.back().mix = *chosen.mix;
        return loads;
    }
    for (const std::size_t size : chosen.sizes) loads.push_back(load_of(chosen, size));
    return loads;
}

}  // namespace accel::perf
