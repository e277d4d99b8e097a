// SPDX-License-Identifier: Apache-2.0
// Which handlers are told to stop: those whose client has cancelled or left, or whose deadline has passed.
#include "core/stop_notifier.hpp"

#include "core/cancel_board.hpp"
#include "patience.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;
using tests::eventually;

constexpr std::uint32_t slots = 50;  // more than the notifier stops in one round

/// An exchange, and whether anything has happened after which its handler has to stop.
struct open_exchange {
    call_id id;
    std::stop_token token;
    bool ends = false;
};

/// A session's board, with at most one exchange in each slot.
class session_game {
  public:
    session_game(std::shared_ptr<stop_notifier> stops, std::uint32_t seed) : board_(slots, std::move(stops)) {
        random_.seed(seed);
    }

    void step() {
        const std::uint32_t slot = pick(slots);
        switch (pick(8)) {
            case 0:
            case 1:
            case 2:
                return watch(slot);
            case 3:
                if (open_.erase(slot) > 0) board_.forget(slot);
                return;
            case 4:
                // One that is answered, begun or on its way: then the slot is free.
                return cancel({slot, open_.contains(slot) ? newest_[slot] - pick(2) : newest_[slot] + 1});
            case 5:
                return check(slot);
            default:
                if (pick(40) != 0) return;
                for (std::uint32_t each = 0; each < slots; ++each) cancel({each, newest_[each]});
        }
    }
    void end() {
        board_.end();
        ended_ = any_ = true;
        for (auto& [slot, each] : open_) each.ends = true;
    }
    [[nodiscard]] bool has_stopped_all() const {
        return std::ranges::all_of(
            open_, [](const auto& each) { return !each.second.ends || each.second.token.stop_requested(); });
    }
    void expect_no_other_stop() const {
        for (const auto& [slot, each] : open_) EXPECT_EQ(each.token.stop_requested(), each.ends) << "slot " << slot;
    }
    /// One that nothing has ended before.
    void cancel_one() {
        const auto open = std::ranges::find_if(open_, [](const auto& each) { return !each.second.ends; });
        if (open != open_.end()) cancel(open->second.id);
    }
    void forget_all() {
        for (const auto& [slot, each] : open_) board_.forget(slot);
        open_.clear();
    }

  private:
    [[nodiscard]] std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

    void watch(std::uint32_t slot) {
        const auto found = open_.find(slot);
        if (found != open_.end()) {
            // Its handler may ask again.
            EXPECT_TRUE(board_.watch(found->second.id, never) == found->second.token);
            return;
        }
        const call_id id{slot, ++newest_[slot]};
        const bool late = pick(6) == 0;
        const nanoseconds deadline = late ? now() : pick(2) == 0 ? never : now() + 1h;
        const std::stop_token token = board_.watch(id, deadline);
        const bool cancelled = ended_ || cancelled_[slot] == id.generation;
        EXPECT_TRUE(!cancelled || token.stop_requested()) << "was cancelled before";
        open_[slot] = {id, token, late || cancelled};
    }
    void cancel(call_id id) {
        if (id.generation <= cancelled_[id.slot]) return;  // a client cancels a call once, and no older one later
        board_.cancel({id.slot + slots, id.generation});   // no such slot
        board_.cancel(id);
        any_ = true;
        cancelled_[id.slot] = id.generation;
        const auto found = open_.find(id.slot);
        if (found != open_.end() && found->second.id == id) found->second.ends = true;
    }
    void check(std::uint32_t slot) {
        EXPECT_EQ(board_.any(), any_);
        EXPECT_EQ(board_.ended(), ended_);
        const std::uint32_t generation = newest_[slot] + pick(3) - 1;
        EXPECT_EQ(board_.cancelled({slot, generation}), ended_ || cancelled_[slot] == generation);
        EXPECT_EQ(board_.cancelled({slots, generation}), ended_);
    }

    cancel_board board_;
    std::minstd_rand random_;
    std::map<std::uint32_t, open_exchange> open_;
    std::array<std::uint32_t, slots> newest_ = [] {
        std::array<std::uint32_t, slots> first{};
        first.fill(2);
        return first;
    }();
    std::array<std::uint32_t, slots> cancelled_{};
    bool any_ = false;
    bool ended_ = false;
};

TEST(stop_notifier, stops_exactly_what_nobody_waits_for_in_random_sequences) {
    for (std::uint32_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const auto stops = std::make_shared<stop_notifier>();
        std::deque<session_game> sessions;
        for (std::uint32_t i = 0; i < 3; ++i) sessions.emplace_back(stops, 10 * seed + i);
        const auto all_stopped = [&] { return std::ranges::all_of(sessions, &session_game::has_stopped_all); };
        for (std::uint32_t round = 0; round < 3; ++round) {
            for (int i = 0; i < 400; ++i) sessions[static_cast<std::size_t>(i) % sessions.size()].step();
            if (round > 0) sessions[round].end();
            ASSERT_TRUE(eventually(all_stopped));
            for (session_game& each : sessions) {
                each.expect_no_other_stop();
                each.cancel_one();  // wakes the notifier, which sleeps
                ASSERT_TRUE(eventually(all_stopped));
            }
        }
        for (session_game& each : sessions) each.forget_all();
    }
}

/// The notifier takes several rounds.
TEST(stop_notifier, end_stops_all_that_were_cancelled_or_left_before_it_returns) {
    for (int round = 0; round < 20; ++round) {
        const auto stops = std::make_shared<stop_notifier>();
        cancel_board left(100, stops);
        cancel_board board(100, stops);
        std::vector<std::stop_token> tokens;
        for (cancel_board* each : {&left, &board})
            for (std::uint32_t slot = 0; slot < 100; ++slot) tokens.push_back(each->watch({slot, 1}, never));
        for (std::uint32_t slot = 0; slot < 99; ++slot) board.cancel({slot, 1});
        left.end();
        EXPECT_TRUE(left.any());
        stops->end();
        EXPECT_EQ(std::ranges::count_if(tokens, &std::stop_token::stop_requested), 199);
    }
}

TEST(stop_notifier, stops_at_each_deadline_and_not_before) {
    const auto stops = std::make_shared<stop_notifier>();
    cancel_board board(40, stops);
    std::mutex mutex;
    std::map<std::uint32_t, nanoseconds> stopped;
    std::vector<nanoseconds> deadlines;
    std::deque<std::stop_callback<std::function<void()>>> callbacks;
    const std::stop_token first = board.watch({39, 1}, never);
    board.cancel({39, 1});
    ASSERT_TRUE(eventually([&] { return first.stop_requested(); })) << "from here on the notifier sleeps";
    for (std::uint32_t slot = 0; slot < 39; ++slot) {
        // Neither in the order of the slots nor all apart.
        deadlines.push_back(now() + std::chrono::milliseconds{1 + 7 * slot % 40});
        callbacks.emplace_back(board.watch({slot, 1}, deadlines.back()), [&mutex, &stopped, slot] {
            const std::lock_guard lock(mutex);
            EXPECT_TRUE(stopped.emplace(slot, now()).second) << "twice";
        });
    }
    EXPECT_TRUE(eventually([&] {
        const std::lock_guard lock(mutex);
        return stopped.size() == 39;
    }));
    for (const auto& [slot, at] : stopped) EXPECT_GE(at, deadlines[slot]);
    stops->end();
}

}  // namespace
}  // namespace accel::core
