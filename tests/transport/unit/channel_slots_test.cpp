// SPDX-License-Identifier: Apache-2.0
#include "core/client/channel_slots.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

/// Slots of a channel in random use, beside a list of what is done, and what each slot is for.
class slots_sequence {
  public:
    explicit slots_sequence(unsigned seed)
        : random_(seed), slots_(1 + below(5)), uses_(slots_.count(), use::free), generations_(slots_.count(), 0) {}

    void step() {
        const std::uint32_t index = below(slots_.count());
        channel_slot& slot = slots_[index];
        const std::uint32_t what = below(3);
        if (uses_[index] == use::free) return take();
        if (uses_[index] == use::begun) return what == 0 ? put_free(index) : send(slot);
        if (uses_[index] == use::taken) return put_free(index);
        if (uses_[index] == use::done) return what == 0 ? take_done(slot) : take_oldest();
        if (what == 0) return;  // it stays in flight
        if (what == 1 && done_.empty()) {
            slots_.finish_taken(slot);
            uses_[index] = use::taken;
        } else {
            slots_.finish(slot);
            uses_[index] = use::done;
            done_.push_back(&slot);
        }
    }
    void check() {
        EXPECT_EQ(slots_.free(), count(use::free));
        EXPECT_EQ(slots_.all_free(), count(use::free) == slots_.count());
        EXPECT_EQ(slots_.open(), count(use::in_flight));
        EXPECT_EQ(slots_.ready(), done_.size());
        nanoseconds next = never;
        for (std::uint32_t i = 0; i < slots_.count(); ++i) {
            if (uses_[i] == use::in_flight) next = std::min(next, slots_[i].deadline);
            const call_id id{i, generations_[i]};
            EXPECT_EQ(slots_.find(id), &slots_[i]);
            EXPECT_EQ(slots_.find({i, id.generation - 1}), nullptr);
            EXPECT_EQ(slots_.find({i + slots_.count(), id.generation}), nullptr);
        }
        EXPECT_LE(slots_.next_deadline(), next);
        EXPECT_EQ(slots_.next_deadline() == never, slots_.open() == 0);
    }

  private:
    enum class use { free, begun, in_flight, done, taken };
    [[nodiscard]] std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
    [[nodiscard]] std::size_t count(use which) const {
        return static_cast<std::size_t>(std::ranges::count(uses_, which));
    }
    void take() {
        channel_slot* const slot = slots_.take_free();
        ASSERT_NE(slot, nullptr);
        const std::uint32_t index = slot->content.id.slot;
        EXPECT_EQ(std::exchange(uses_[index], use::begun), use::free);
        EXPECT_EQ(slot->state, slot_state::begun);
        EXPECT_EQ(slot->content.id.generation, ++generations_[index]);
        if (count(use::free) == 0) {
            EXPECT_EQ(slots_.take_free(), nullptr);
        }
    }
    void put_free(std::uint32_t index) {
        slots_.put_free(slots_[index]);
        uses_[index] = use::free;
    }
    void send(channel_slot& slot) {
        slot.deadline = nanoseconds{below(1000)};
        slots_.set_in_flight(slot);
        uses_[slot.content.id.slot] = use::in_flight;
        EXPECT_LE(slots_.next_deadline(), slot.deadline);
    }
    void take_oldest() {
        EXPECT_EQ(slots_.take_done(), done_.front());
        uses_[done_.front()->content.id.slot] = use::taken;
        done_.pop_front();
    }
    /// Out of order, as the blocking call does.
    void take_done(channel_slot& slot) {
        slots_.take_done(slot);
        EXPECT_EQ(slot.state, slot_state::taken);
        uses_[slot.content.id.slot] = use::taken;
        std::erase(done_, &slot);
        if (done_.empty()) {
            EXPECT_EQ(slots_.take_done(), nullptr);
        }
    }

    std::mt19937 random_;
    channel_slots slots_;
    std::vector<use> uses_;
    std::vector<std::uint32_t> generations_;
    std::deque<channel_slot*> done_;
};

TEST(channel_slots, each_slot_is_taken_once_under_a_new_generation_and_calls_come_in_the_order_of_their_end) {
    for (unsigned seed = 0; seed < 100; ++seed) {
        SCOPED_TRACE(seed);
        slots_sequence random(seed);
        for (int i = 0; i < 400; ++i) {
            random.step();
            random.check();
            if (::testing::Test::HasFailure()) FAIL() << "step " << i;
        }
    }
}

TEST(channel_slots, generations_wrap_past_zero) {
    channel_slots slots(1);
    slots[0].content.id.generation = ~0U;
    EXPECT_EQ(slots.take_free()->content.id.generation, 1U) << "0 is never a call";
}

TEST(channel_slots, stages_are_told_by_the_channel_s_own_clock) {
    constexpr std::chrono::nanoseconds server_ahead = 5h;
    channel_slot slot;
    slot.submitted = 100ms;
    link_event event;
    event.header.arrival_ns = (server_ahead + 130ms).count();
    event.header.server_ticks = to_ticks(20ms);
    call_outcome told;
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
    call_outcome told;
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
            call_outcome told;
            slot.fill(told, event, 200ms, ahead);
            EXPECT_EQ(told.timeline.total, std::chrono::nanoseconds{100ms});
            EXPECT_GE(told.timeline.request, std::chrono::nanoseconds{0});
            EXPECT_LE(told.timeline.request, told.timeline.total);
        }
    }
}

}  // namespace
}  // namespace accel::core
