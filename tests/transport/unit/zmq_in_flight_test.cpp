// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/in_flight.hpp"
#include "backends/zmq/message.hpp"
#include "tcp_pair.hpp"
#include "zmq_pair.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

namespace accel::zmq::testing {
namespace {

/// Two links with one list, and ZeroMQ, which releases their frames in any order.
class in_flight_game {
  public:
    explicit in_flight_game(std::uint32_t seed) : random_(seed) {
        for (link_model& each : links_) {
            auto memory = make_slots(slots, 100);
            each.memory = memory;
            each.frames = in_flight::make(slots, std::move(memory), list_, &each);
        }
    }
    void step() {
        const std::uint32_t which = pick(links_.size());
        const std::uint32_t slot = pick(slots);
        link_model& link = links_[which];
        switch (pick(10)) {
            case 0:
            case 1:
            case 2:
                if (!link.gone) send(link, slot);
                break;
            case 3:
            case 4:
            case 5:
                release_one();
                break;
            case 6:
                if (!link.gone) want(link, slot);
                break;
            case 7:
                take();
                break;
            case 8:
                if (pick(2) == 0) arm();
                break;
            default:
                if (pick(10) == 0 && !link.gone) leave(link);
        }
        check();
    }
    /// The poller ends, and ZeroMQ releases the rest later.
    void end() {
        for (link_model& each : links_)
            if (!each.gone) leave(each);
        if (pick(2) == 0) {
            settle_forgotten();
            check();
        }
        list_->close();
        list_.reset();
        while (!frames_.empty()) release_one();
        for (const link_model& each : links_) EXPECT_TRUE(each.memory.expired());
    }

  private:
    static constexpr std::uint32_t slots = 3;
    enum class lent { no, held, wanted, returned };
    struct link_model {
        in_flight::owner frames;
        std::weak_ptr<core::slot_memory> memory;
        std::array<std::uint32_t, slots> count{};  ///< frames that ZeroMQ has
        std::array<lent, slots> payload{};
        bool gone = false;
    };
    struct frame {
        link_model* of;
        lent_payload* at;
        bool lent;
    };
    [[nodiscard]] std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }

    void send(link_model& link, std::uint32_t slot) {
        core::outgoing message{slot, {}, nullptr, {}};
        const bool lends = pick(2) == 0;
        if (lends) message.region = tcp::testing::some_region();
        const bool free = link.count[slot] == 0 && (!lends || link.payload[slot] == lent::no);
        ASSERT_EQ(can_send(*link.frames, message), free);
        if (!free) return;
        lent_payload& at = link.frames->lent(slot);
        if (lends) {
            // As `send_message`.
            const bool tell = pick(2) == 0;
            at.now = tell ? lent_payload::state::wanted : lent_payload::state::held;
            if (tell) list_->expect();
            expected_ += tell ? 1U : 0U;
            link.payload[slot] = tell ? lent::wanted : lent::held;
            enter(link, at, true);
        }
        if (!lends || pick(2) == 0) enter(link, at, false);
    }
    void enter(link_model& link, lent_payload& at, bool lent) {
        link.frames->enter(at);
        ++link.count[at.slot];
        frames_.push_back({&link, &at, lent});
    }
    void release_one() {
        if (frames_.empty()) return;
        const auto found = frames_.begin() + static_cast<std::ptrdiff_t>(pick(frames_.size()));
        const frame released = *found;
        frames_.erase(found);
        const std::uint32_t slot = released.at->slot;
        --released.of->count[slot];
        if (released.lent) {
            lent& state = released.of->payload[slot];
            if (state == lent::wanted) {
                ++returned_;
                signalled_ = signalled_ || armed_;
                armed_ = false;
            }
            state = state == lent::wanted ? lent::returned : lent::no;
        }
        (released.lent ? in_flight::free_lent : in_flight::free_slot)(nullptr, released.at);
    }
    void want(link_model& link, std::uint32_t slot) {
        const bool idle = link.payload[slot] == lent::no;
        if (link.payload[slot] == lent::held) {
            link.payload[slot] = lent::wanted;
            ++expected_;
        }
        EXPECT_EQ(link.frames->want(slot), idle);
    }
    void take() {
        lent_payload* const each = list_->next();
        ASSERT_EQ(each != nullptr, returned_ > 0);
        if (each == nullptr) return;
        auto& link = *static_cast<link_model*>(each->link);
        EXPECT_EQ(link.payload[each->slot], lent::returned);
        EXPECT_EQ(each->owner->forgotten(), link.gone);
        link.payload[each->slot] = lent::no;
        --returned_;
        --expected_;
        in_flight::settle(*each);
    }
    void arm() {
        EXPECT_EQ(list_->armed(), armed_);
        if (pick(2) == 0) {
            list_->arm();
            armed_ = true;
        } else {
            list_->disarm();
            armed_ = signalled_ = false;
        }
    }
    void leave(link_model& link) {
        link.frames->forget();
        link.gone = true;
        link.frames.reset();
        if (pick(2) == 0) return;
        settle_forgotten();
    }
    void settle_forgotten() {
        list_->settle_forgotten();
        for (link_model& each : links_)
            for (lent& state : each.payload)
                if (each.gone && state == lent::returned) {
                    state = lent::no;
                    --returned_;
                    --expected_;
                }
    }
    void check() {
        EXPECT_EQ(list_->empty(), returned_ == 0);
        EXPECT_EQ(list_->expected(), expected_);
        pollfd readable{list_->fd(), POLLIN, 0};
        EXPECT_EQ(::poll(&readable, 1, 0) == 1, signalled_);
        for (const link_model& each : links_) {
            const bool busy = std::ranges::any_of(each.count, [](std::uint32_t count) { return count > 0; }) ||
                              std::ranges::count(each.payload, lent::returned) > 0;
            EXPECT_TRUE(each.gone || each.frames->idle() == !busy);
            EXPECT_EQ(each.memory.expired(), each.gone && !busy);
        }
    }

    std::minstd_rand random_;
    std::shared_ptr<release_list> list_ = std::make_shared<release_list>();
    std::array<link_model, 2> links_;
    std::vector<frame> frames_;
    std::size_t returned_ = 0;
    std::size_t expected_ = 0;
    bool armed_ = false;
    bool signalled_ = false;
};

TEST(zmq_in_flight, memory_comes_back_once_and_stays_until_zeromq_has_released_it) {
    for (std::uint32_t seed = 1; seed <= 300 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        in_flight_game game(seed);
        for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) game.step();
        game.end();
    }
}

}  // namespace
}  // namespace accel::zmq::testing
