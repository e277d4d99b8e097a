// SPDX-License-Identifier: Apache-2.0
// Callers of a model in random order: they ask for slots, with and without room for parts, submit, give up, and have
// requests given back. Each gets a slot, and no slot is lost.
#include "backend_rig.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

constexpr std::uint32_t slots = 4;  ///< of each server
constexpr int servers = 2;

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
        on.release(answer.id);
    }
    void submit() {
        if (!slot_) return;
        const call_slot slot = *std::exchange(slot_, std::nullopt);
        submitted_ = true;
        submit_options options = usual_options;
        options.parts = slot.parts;
        EXPECT_EQ(slot.on->submit(slot.id, 1, options, shared_from_this()), status::ok);
    }
    void release() {
        if (!slot_) return;
        const call_slot slot = *std::exchange(slot_, std::nullopt);
        ended_ = true;
        slot.on->release(slot.id);
    }
    /// As if its server had not taken the request.
    void come_back() {
        if (!slot_ || !to_.take_back(ended(status::closed), *slot_, 1, returned_)) return;
        slot_.reset();
        wish_.past = returned_.past();
        wish_.body_follows = false;
        ask();
    }
    /// While it waits.
    void give_up() {
        if (slot_ || submitted_) return;
        to_.forget(*this);
        ended_ = true;
    }
    [[nodiscard]] bool has_ended() const { return ended_; }
    [[nodiscard]] bool was_submitted() const { return submitted_; }

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
    explicit crowd(unsigned seed) : random_(seed) {}

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
    void finish() {
        EXPECT_TRUE(rig_.run_until([this] {
            for (const auto& each : std::vector(all_)) each->submit();
            return std::ranges::all_of(all_, [](const auto& each) { return each->has_ended(); });
        })) << "a caller got no slot";
        EXPECT_EQ(rig_.in_flight(), 0U);
        EXPECT_EQ(rig_.requests(), std::ranges::count_if(all_, [](const auto& each) { return each->was_submitted(); }));
        std::vector<std::shared_ptr<waiting_caller>> last;
        for (std::uint32_t i = 0; i < servers * slots; ++i) last.push_back(rig_.ask());
        for (const auto& each : last) EXPECT_EQ(each->held.size(), 1U) << "a slot was lost";
    }

  private:
    void ask() {
        slot_wish wish;
        wish.parts = random_() % 3 == 0 ? random_() % slots : 0;
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
    backend_rig rig_{servers, slots};
    std::vector<std::shared_ptr<random_caller>> all_;
    unsigned last_ = 0;
};

TEST(doors_sequences, each_caller_gets_one_slot_and_none_is_lost) {
    for (unsigned seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(seed);
        crowd random(seed);
        for (int i = 0; i < 300; ++i) random.step();
        random.finish();
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace accel::examples::serving::doors
