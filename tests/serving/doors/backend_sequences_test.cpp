// SPDX-License-Identifier: Apache-2.0
// Callers of a model in random order: they ask for slots, with and without room for parts, send bodies slowly, submit,
// give up, and have requests given back. Each gets a slot, no slot is lost, and none is free while somebody may have
// it.
#include "backend_rig.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

class random_caller final : public caller, public std::enable_shared_from_this<random_caller> {
  public:
    random_caller(backend& to, slot_wish wish, unsigned number)
        : to_(to), wish_(wish), mark_(static_cast<std::byte>(number)) {}

    void ask() { to_.ask_slot(shared_from_this(), wish_); }
    void on_slot(status got, const call_slot& slot) override {
        ASSERT_EQ(got, status::ok);
        ASSERT_FALSE(slot_ || ended_) << "it has had its slot";
        slot_ = slot;
        if (returned_.is_kept())
            returned_.move_to(slot);
        else
            slot.request[0] = mark_;
        EXPECT_EQ(slot.request[0], mark_);
        if (wish_.parts > 0) submit();  // it has to at once
    }
    void on_answer(door_channel& on, const completion& answer) override {
        EXPECT_EQ(answer.status, status::ok);
        EXPECT_FALSE(std::exchange(ended_, true)) << "a second answer";
        slot_.reset();
        on.release(answer.id);
    }
    void submit() {
        if (!slot_ || submitted_) return;
        submitted_ = true;
        submit_options options = usual_options;
        options.parts = slot_->parts;
        const call_slot slot = *slot_;
        EXPECT_EQ(slot.on->submit(slot.id, 1, options, shared_from_this()), status::ok);
    }
    void release() {
        if (!slot_ || submitted_) return;
        const call_slot slot = *std::exchange(slot_, std::nullopt);
        ended_ = true;
        slot.on->release(slot.id);
    }
    /// As if its server had not taken the request.
    void come_back() {
        if (!slot_ || submitted_ || !to_.take_back(ended(status::closed), *slot_, 1, returned_)) return;
        slot_.reset();
        wish_.past = returned_.past();
        wish_.body_follows = false;
        ask();
    }
    /// While it waits.
    void give_up() {
        if (slot_) return;
        to_.forget(*this);
        ended_ = true;
    }
    [[nodiscard]] bool has_ended() const { return ended_; }
    [[nodiscard]] bool was_submitted() const { return submitted_; }
    [[nodiscard]] bool waits() const { return !slot_ && !ended_; }
    [[nodiscard]] const std::optional<call_slot>& slot() const { return slot_; }
    [[nodiscard]] const slot_wish& wish() const { return wish_; }
    /// Its body takes a share of the slots.
    [[nodiscard]] bool sends() const { return slot_ && !submitted_ && wish_.body_follows; }

  private:
    backend& to_;
    slot_wish wish_;
    std::byte mark_;
    std::optional<call_slot> slot_;
    returned_request returned_;
    bool submitted_ = false;
    bool ended_ = false;
};

class crowd {
  public:
    explicit crowd(unsigned seed)
        : random_(seed), servers_(1 + seed % 3), slots_(std::array{1U, 4U, 9U}[seed / 3 % 3]), parts_(seed >= 18) {}

    void step() {
        rig_.run_ready();
        switch (random_() % 8) {
            case 0:
                return any([](random_caller& one) { one.release(); });
            case 1:
                return any([](random_caller& one) { one.come_back(); });
            case 2:
            case 3:
                return any([](random_caller& one) { one.submit(); });
            case 4:
                return any([](random_caller& one) { one.give_up(); });
            default:
                return ask();
        }
    }
    /// Nobody waits for a slot that is free and that it may have. Who wants parts may wait for several, ahead of
    /// others.
    void expect_no_idle_slot() {
        std::vector<std::uint32_t> used(servers_), bodies(servers_);
        for (const auto& each : all_) {
            if (!each->slot()) continue;
            ++used.at(rig_.server_of(*each->slot()));
            bodies.at(rig_.server_of(*each->slot())) += each->sends() ? 1U : 0U;
        }
        const std::uint32_t share = std::max(1U, slots_ / 2);
        for (const std::uint32_t each : bodies) EXPECT_LE(each, share) << "bodies that are not complete";
        for (const auto& each : all_) {
            if (!each->waits() || parts_ || each->wish().past.last != 0) continue;
            for (std::size_t i = 0; i < servers_; ++i)
                EXPECT_TRUE(used[i] == slots_ || (each->wish().body_follows && bodies[i] == share)) << "server " << i;
        }
    }
    void finish() {
        EXPECT_TRUE(rig_.run_until([this] {
            for (const auto& each : std::vector(all_)) each->submit();
            return std::ranges::all_of(all_, [](const auto& each) { return each->has_ended(); });
        })) << "a caller got no slot";
        EXPECT_EQ(rig_.in_flight(), 0U);
        EXPECT_EQ(rig_.requests(), std::ranges::count_if(all_, [](const auto& each) { return each->was_submitted(); }));
        std::vector<std::shared_ptr<waiting_caller>> last;
        for (std::uint32_t i = 0; i < servers_ * slots_; ++i) last.push_back(rig_.ask());
        for (const auto& each : last) EXPECT_EQ(each->held.size(), 1U) << "a slot was lost";
    }

  private:
    void ask() {
        slot_wish wish;
        wish.parts = parts_ && random_() % 3 == 0 ? static_cast<std::uint32_t>(random_() % slots_) : 0;
        wish.body_follows = wish.parts == 0 && random_() % 3 == 0;
        all_.push_back(std::make_shared<random_caller>(rig_.model(), wish, ++last_));
        all_.back()->ask();
    }
    template <typename What>
    void any(What what) {
        std::vector<std::shared_ptr<random_caller>> open;
        std::ranges::copy_if(all_, std::back_inserter(open), [](const auto& each) { return !each->has_ended(); });
        if (!open.empty()) what(*open[random_() % open.size()]);
    }

    std::mt19937 random_;
    std::uint32_t servers_;
    std::uint32_t slots_;
    bool parts_;  ///< some want their answers in parts
    backend_rig rig_{static_cast<int>(servers_), slots_};
    std::vector<std::shared_ptr<random_caller>> all_;
    unsigned last_ = 0;
};

TEST(doors_sequences, each_caller_gets_one_slot_and_none_is_lost) {
    for (unsigned seed = 0; seed < 36; ++seed) {
        SCOPED_TRACE(seed);
        crowd random(seed);
        for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
            random.step();
            random.expect_no_idle_slot();
        }
        random.finish();
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace accel::examples::serving::doors
