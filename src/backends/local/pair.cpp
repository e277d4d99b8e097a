// SPDX-License-Identifier: Apache-2.0
#include "backends/local/pair.hpp"

#include "core/fork_guard.hpp"

#include <bit>
#include <map>
#include <mutex>

namespace accel::local {

void wakeup::wake() noexcept {
    if (asleep.exchange(false, std::memory_order_seq_cst)) signal.set();
}

// A slot has at most one message and one release on the way.
ring::ring(std::uint32_t slots) : entries_(std::bit_ceil(2 * slots)), mask_(std::bit_ceil(2 * slots) - 1) {}

namespace {

struct offers {
    std::mutex mutex;
    std::map<std::uint64_t, std::weak_ptr<pair>> by_key;
    std::uint64_t last_key = 0;
};

constinit core::per_process<offers> all_offers;

}  // namespace

std::uint64_t offer_pair(const std::shared_ptr<pair>& made) {
    offers& all = all_offers.get();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.by_key, [](const auto& offer) { return offer.second.expired(); });
    all.by_key[++all.last_key] = made;
    return all.last_key;
}

std::shared_ptr<pair> take_pair(std::uint64_t key) {
    offers& all = all_offers.get();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_key.find(key);
    if (found == all.by_key.end()) return nullptr;
    auto taken = found->second.lock();
    all.by_key.erase(found);
    return taken;
}

}  // namespace accel::local
