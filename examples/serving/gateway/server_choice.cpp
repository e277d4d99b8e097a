// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/server_choice.hpp"

namespace accel::examples::gateway {
namespace {

/// splitmix64: neighbouring numbers go different ways.
[[nodiscard]] std::uint64_t spread(std::uint64_t key) noexcept {
    key += 0x9e3779b97f4a7c15U;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
    return key ^ (key >> 31);
}

}  // namespace

std::size_t server_choice::first_for(std::uint64_t key) noexcept {
    if (servers_.size() == 1) return 0;
    if (balance_ == balance::sticky) return spread(key) % servers_.size();
    const std::size_t turn = next_++ % servers_.size();
    if (balance_ == balance::round_robin) return turn;
    std::size_t best = turn;
    for (std::size_t i = 1; i < servers_.size(); ++i) {
        const std::size_t other = (turn + i) % servers_.size();
        if (server(other).in_flight() < server(best).in_flight()) best = other;
    }
    return best;
}

}  // namespace accel::examples::gateway
