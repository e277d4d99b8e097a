// SPDX-License-Identifier: Apache-2.0
#include "core/control/cancel_outbox.hpp"

#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

/// Against a model: the newest generation of each slot that is not on its way.
TEST(cancel_outbox, the_newest_cancel_of_each_slot_is_taken_once_and_wakes_once) {
    constexpr std::uint32_t slots = 6;
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::minstd_rand random(seed);
        cancel_outbox outbox{slots};
        std::map<std::uint32_t, std::uint32_t> waiting;
        std::vector<call_id> under_way;
        bool woken = false;
        for (std::uint32_t step = 1; step <= 40; ++step) {
            const std::uint32_t slot = static_cast<std::uint32_t>(random() % (slots + 1));
            const std::size_t most = 1 + random() % slots;
            switch (random() % 4) {
                case 0:
                    outbox.put_back(under_way);  // could not be told
                    for (const call_id& each : under_way) waiting.emplace(each.slot, each.generation);
                    under_way.clear();
                    woken = true;
                    break;
                case 1:
                    under_way = outbox.take(most);
                    for (const call_id& each : under_way) {
                        EXPECT_EQ(each.slot, waiting.begin()->first) << "step " << step;
                        EXPECT_EQ(each.generation, waiting.begin()->second) << "step " << step;
                        waiting.erase(waiting.begin());
                    }
                    EXPECT_TRUE(under_way.size() == most || waiting.empty());
                    woken = !waiting.empty();
                    break;
                default:
                    EXPECT_EQ(outbox.add({slot, step}), slot < slots && !woken) << "step " << step;
                    if (slot == slots) break;  // there is no such slot
                    waiting[slot] = step;
                    woken = true;
            }
            EXPECT_EQ(outbox.pending(), woken) << "step " << step;
        }
    }
}

}  // namespace
}  // namespace accel::core
