// SPDX-License-Identifier: Apache-2.0
#include "core/client/pool_choice.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {
namespace {

/// splitmix64: neighbouring numbers go different ways.
std::uint64_t spread(std::uint64_t key) noexcept {
    key += 0x9e3779b97f4a7c15U;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9U;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebU;
    return key ^ (key >> 31);
}

}  // namespace

std::uint64_t pool_choice::key_of(std::string_view text) noexcept {
    return text.empty() ? 0 : std::max<std::uint64_t>(number_of(text), 1);
}

/// Sticky ranks the hosts for each key by a hash of both (rendezvous hashing). So if one goes or comes, only its own
/// keys move, and to all others alike.
std::size_t pool_choice::next_of_several(pool_balance how, std::uint64_t key, std::uint64_t tried) noexcept {
    const std::size_t count = seats_.size();
    const bool sticky = how == pool_balance::sticky && key != 0;
    std::size_t best = none;
    std::pair<bool, std::uint64_t> least;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = (turn_ + i) % count;
        if ((tried & bit(at)) != 0) continue;
        const pool_host& host = *seats_[at]->host;
        std::uint64_t load = 0;
        if (sticky) load = ~spread(key ^ host.number);
        if (how == pool_balance::least_loaded) load = host.in_flight.load(std::memory_order_relaxed);
        const std::pair rank{host.out.load(std::memory_order_relaxed), load};
        if (best != none && !(rank < least)) continue;
        best = at;
        least = rank;
    }
    if (best != none && !sticky) turn_ = best + 1;
    return best;
}

}  // namespace accel::core
