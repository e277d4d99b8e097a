// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_slots.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(channel_slots, a_freed_slot_is_taken_under_another_generation) {
    channel_slots slots(3);
    std::set<call_id> seen;
    for (int round = 0; round < 4; ++round) {
        std::vector<channel_slot*> taken;
        for (int i = 0; i < 3; ++i) {
            channel_slot* slot = slots.take_free();
            ASSERT_NE(slot, nullptr);
            EXPECT_EQ(slot->state, slot_state::begun);
            EXPECT_TRUE(seen.insert(slot->content.id).second);
            taken.push_back(slot);
        }
        EXPECT_EQ(slots.take_free(), nullptr);
        for (channel_slot* slot : taken) slots.put_free(*slot);
    }
}

TEST(channel_slots, only_current_ids_are_found) {
    channel_slots slots(2);
    const call_id old = slots.take_free()->content.id;
    slots.put_free(slots[old.slot]);
    const call_id now = slots.take_free()->content.id;
    EXPECT_EQ(slots.find(old), nullptr);
    ASSERT_NE(slots.find(now), nullptr);
    EXPECT_EQ(slots.find({2, now.generation}), nullptr);
    EXPECT_EQ(slots.find({~0U, ~0U}), nullptr);
}

TEST(channel_slots, generations_wrap_past_zero) {
    channel_slots slots(1);
    slots[0].content.id.generation = ~0U;
    EXPECT_EQ(slots.take_free()->content.id.generation, 1U) << "0 is never a call";
}

TEST(channel_slots, completions_come_in_the_order_of_their_end) {
    channel_slots slots(5);
    std::vector<channel_slot*> taken;
    for (int i = 0; i < 5; ++i) {
        taken.push_back(slots.take_free());
        taken.back()->deadline = 10ms * (i + 1);
        slots.set_in_flight(*taken.back());
    }
    EXPECT_EQ(slots.open(), 5U);
    EXPECT_EQ(slots.next_deadline(), 10ms);
    for (const int i : {3, 0, 4, 1}) slots.finish(*taken[static_cast<std::size_t>(i)]);
    EXPECT_EQ(slots.open(), 1U);
    EXPECT_EQ(slots.ready(), 4U);
    slots.take_done(*taken[4]);  // out of order, as the blocking call does
    EXPECT_EQ(slots.take_done(), taken[3]);
    EXPECT_EQ(slots.take_done(), taken[0]);
    EXPECT_EQ(slots.take_done(), taken[1]);
    EXPECT_EQ(slots.take_done(), nullptr);
    slots.finish(*taken[2]);
    EXPECT_EQ(slots.take_done(), taken[2]);
    EXPECT_EQ(slots.open(), 0U);
    EXPECT_EQ(slots.next_deadline(), never);
}

TEST(channel_slots, stages_are_told_by_the_channel_s_own_clock) {
    constexpr std::chrono::nanoseconds server_ahead = 5h;
    channel_slot slot;
    slot.submitted = 100ms;
    link_event event;
    event.header.arrival_ns = (server_ahead + 130ms).count();
    event.header.server_ticks = to_ticks(20ms);
    completion told;
    slot.fill(told, event, 200ms, server_ahead);
    EXPECT_EQ(told.timeline.total, std::chrono::nanoseconds{100ms});
    EXPECT_EQ(told.timeline.request, std::chrono::nanoseconds{30ms});
    EXPECT_EQ(told.timeline.response, std::chrono::nanoseconds{50ms});
}

TEST(channel_slots, a_completion_has_all_of_its_answer) {
    channel_slot slot;
    slot.submitted = 100ms;
    slot.content.id = {3, 7};
    slot.content.tag = 11;
    slot.content.trace_id = 12;
    std::array<std::byte, 4> payload{};
    link_event event;
    event.payload = payload;
    event.header.code = status::application_error;
    event.header.application_code = 13;
    event.header.queue_ticks = to_ticks(64us);
    event.header.copy_ticks = to_ticks(128us);
    event.header.preprocessing_ticks = to_ticks(192us);
    event.header.inference_ticks = to_ticks(256us);
    event.header.server_ticks = to_ticks(640us);
    completion told;
    told.more = true;
    slot.fill(told, event, 200ms, {});
    EXPECT_EQ(told.id, slot.content.id);
    EXPECT_EQ(told.call, slot.content.id);
    EXPECT_EQ(told.status, status::application_error);
    EXPECT_FALSE(told.more);
    EXPECT_EQ(told.code, 13U);
    EXPECT_EQ(told.tag, 11U);
    EXPECT_EQ(told.trace_id, 12U);
    EXPECT_EQ(told.response.data(), payload.data());
    EXPECT_EQ(told.timeline.queue, std::chrono::nanoseconds{64us});
    EXPECT_EQ(told.timeline.copy, std::chrono::nanoseconds{128us});
    EXPECT_EQ(told.timeline.preprocessing, std::chrono::nanoseconds{192us});
    EXPECT_EQ(told.timeline.inference, std::chrono::nanoseconds{256us});
    EXPECT_EQ(told.timeline.server, std::chrono::nanoseconds{640us});
}

TEST(channel_slots, extreme_times_of_a_server_stay_within_the_total) {
    channel_slot slot;
    slot.submitted = 100ms;
    for (const std::int64_t arrival :
         {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
        for (const std::chrono::nanoseconds ahead : {-5h, 0h, 5h}) {
            link_event event;
            event.header.arrival_ns = arrival;
            completion told;
            slot.fill(told, event, 200ms, ahead);
            EXPECT_EQ(told.timeline.total, std::chrono::nanoseconds{100ms});
            EXPECT_GE(told.timeline.request, std::chrono::nanoseconds{0});
            EXPECT_LE(told.timeline.request, told.timeline.total);
        }
    }
}

TEST(channel_slots, the_queue_of_finished_calls_wraps_around) {
    channel_slots slots(4);
    std::array<channel_slot*, 3> order{slots.take_free(), slots.take_free(), slots.take_free()};
    std::sort(order.begin(), order.end());
    do {  // three of four places: each order begins at another one
        for (channel_slot* each : order) slots.set_in_flight(*each);
        for (channel_slot* each : order) slots.finish(*each);
        for (channel_slot* each : order) EXPECT_EQ(slots.take_done(), each);
    } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace accel::core
