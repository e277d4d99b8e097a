// SPDX-License-Identifier: Apache-2.0
#include "core/control/cancel_outbox.hpp"

#include <gtest/gtest.h>

namespace accel::core {
namespace {

TEST(cancel_outbox, an_outbox_wakes_its_thread_once) {
    cancel_outbox outbox{8};
    EXPECT_FALSE(outbox.pending());
    EXPECT_TRUE(outbox.add({7, 6}));
    EXPECT_FALSE(outbox.add({7, 9})) << "the thread has been woken";
    EXPECT_TRUE(outbox.pending());
    EXPECT_EQ(outbox.take(8), (std::vector<call_id>{{7, 9}}));
    EXPECT_FALSE(outbox.pending());
    EXPECT_TRUE(outbox.add({7, 10}));
}

TEST(cancel_outbox, cancels_are_taken_in_batches) {
    cancel_outbox outbox{5};
    for (std::uint32_t slot = 0; slot < 5; ++slot) (void)outbox.add({slot, slot + 5});
    EXPECT_EQ(outbox.take(3), (std::vector<call_id>{{0, 5}, {1, 6}, {2, 7}}));
    EXPECT_TRUE(outbox.pending());
    EXPECT_EQ(outbox.take(3), (std::vector<call_id>{{3, 8}, {4, 9}}));
    EXPECT_FALSE(outbox.pending());
}

TEST(cancel_outbox, unsent_cancels_are_put_back) {
    cancel_outbox outbox{3};
    for (std::uint32_t slot = 0; slot < 3; ++slot) (void)outbox.add({slot, 5});
    const std::vector<call_id> untold = outbox.take(2);
    (void)outbox.add({0, 6});
    outbox.put_back(untold);
    EXPECT_TRUE(outbox.pending());
    EXPECT_EQ(outbox.take(3), (std::vector<call_id>{{0, 6}, {1, 5}, {2, 5}}));
}

TEST(cancel_outbox, slots_that_do_not_exist_are_ignored) {
    cancel_outbox outbox{1000};
    EXPECT_FALSE(outbox.add({1000, 1}));
    EXPECT_FALSE(outbox.pending());
}

}  // namespace
}  // namespace accel::core
