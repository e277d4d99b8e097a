// SPDX-License-Identifier: Apache-2.0
// Who of those that wait is next to shake hands with a server.
#include "core/control/handshake_queue.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core::testing {
namespace {

bool everybody(const std::string&) {
    return true;
}

/// Against what waits: of each address the newest is first, and none has two turns while another waits for one.
TEST(handshake_queue, addresses_take_turns_and_the_newest_of_each_is_first) {
    const std::vector<std::string> addresses{"flood", "flood", "flood", "flood", "a", "b", "c"};
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        handshake_queue queue;
        std::map<std::string, std::set<std::uint64_t>> waiting;
        std::map<std::string, std::set<std::string>> passed;  ///< who has had a turn while that address waited
        std::uint64_t newest = 0;
        const auto expect_next = [&] {
            const auto next = queue.next(everybody);
            const auto whose = std::ranges::find_if(
                waiting, [&](const auto& each) { return !each.second.empty() && *each.second.rbegin() == next; });
            ASSERT_NE(whose, waiting.end()) << next.value_or(0);
            whose->second.erase(*next);
            passed[whose->first].clear();
            for (const auto& [address, ids] : waiting) {
                if (ids.empty() || address == whose->first) continue;
                EXPECT_TRUE(passed[address].insert(whose->first).second) << address << " waits on";
            }
        };
        for (int step = 0; step < 100 && !HasFailure(); ++step) {
            const std::string& address = addresses[random() % addresses.size()];
            auto& ids = waiting[address];
            const bool some = std::ranges::any_of(waiting, [](const auto& each) { return !each.second.empty(); });
            const auto what = random() % 8;
            if (what < 4) {
                if (ids.empty()) passed[address].clear();
                queue.add(address, ++newest);
                ids.insert(newest);
            } else if (what == 4) {
                const std::uint64_t gone = ids.empty() ? 4711 : *ids.begin();
                queue.remove(address, gone);
                ids.erase(gone);
                EXPECT_FALSE(queue.holds(address, gone));
            } else if (some) {
                expect_next();
            }
            EXPECT_TRUE(ids.empty() || (queue.holds(address, *ids.rbegin()) && !queue.empty()));
        }
        std::size_t left = 0;
        for (const auto& [address, ids] : waiting) left += ids.size();
        for (; left > 0 && !HasFailure(); --left) expect_next();
        EXPECT_EQ(queue.next(everybody), std::nullopt);
        EXPECT_TRUE(queue.empty());
    }
}

TEST(handshake_queue, an_address_without_a_share_keeps_its_place) {
    handshake_queue queue;
    queue.add("a", 1);
    queue.add("b", 2);
    int asked = 0;
    const auto but_not_a = [&](const std::string& address) {
        ++asked;
        return address != "a";
    };
    EXPECT_EQ(queue.next(but_not_a), 2U);
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(queue.next(but_not_a), std::nullopt);
    EXPECT_FALSE(queue.empty());
    EXPECT_EQ(queue.next(everybody), 1U);
}

}  // namespace
}  // namespace accel::core::testing
