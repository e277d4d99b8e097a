// SPDX-License-Identifier: Apache-2.0
// When the HTTP door looks at which connection, and which one ends for a newcomer: random connections against lists.
#include "serving/doors/http/deadline_order.hpp"
#include "serving/doors/http/idle_order.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using time_point = std::chrono::steady_clock::time_point;
using boost::asio::ip::address;

struct timed_entry : deadline_entry {};

time_point at_second(unsigned second) {
    return time_point{std::chrono::hours{1}} + std::chrono::seconds{second};
}

/// Connections of which each is looked at once by the earliest of its times, and destroyed ones never.
void watch_connections(std::mt19937& random) {
    std::array<std::unique_ptr<timed_entry>, 6> all;
    deadline_order<timed_entry> order;
    std::map<const timed_entry*, unsigned> wanted;
    for (int step = 0; step < 100; ++step) {
        SCOPED_TRACE(step);
        auto& one = all[random() % all.size()];
        const auto second = static_cast<unsigned>(random() % 20);
        if (!one || random() % 8 == 0) {
            wanted.erase(one.get());
            one = std::make_unique<timed_entry>();
        } else if (random() % 8 == 0) {
            order.look_by(*one, time_point::max());
        } else if (random() % 2 == 0) {
            order.look_by(*one, at_second(second));
            auto& earliest = wanted.try_emplace(one.get(), second).first->second;
            earliest = std::min(earliest, second);
        } else {
            const auto by_time = [](const auto& a, const auto& b) { return a.second < b.second; };
            const auto first = std::ranges::min_element(wanted, by_time);
            const timed_entry* const due = order.take_due(at_second(second));
            ASSERT_EQ(due != nullptr, first != wanted.end() && first->second <= second);
            if (due == nullptr) continue;
            ASSERT_TRUE(wanted.contains(due));
            EXPECT_EQ(wanted.at(due), first->second);
            wanted.erase(due);
        }
    }
}

TEST(doors_deadline_order, each_connection_is_due_once_by_its_earliest_time) {
    for (unsigned seed = 0; seed < 200 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        watch_connections(random);
    }
}

struct entry : idle_entry {
    using idle_entry::idle_entry;
    bool is_in = false;  ///< the order
    bool stays = false;  ///< it may not end
};

/// The connections of a door, and those that are idle in a list, the longest idle first.
class idle_sequence {
  public:
    explicit idle_sequence(unsigned seed) : random_(seed) {
        for (std::size_t i = 0; i < 40; ++i)
            all_.push_back(std::make_unique<entry>(clients[i % 4 % 3]));  // the first has half of them
    }
    void step() {
        entry& one = *all_[random_() % all_.size()];
        switch (random_() % 8) {
            case 0:
                if (!one.is_in) order_.join(one);
                one.is_in = true;
                return;
            case 1:
                if (random_() % 4 > 0) return;
                order_.leave(one);  // a second time, it changes nothing
                one.is_in = false;
                return void(std::erase(idle_, &one));
            case 2:
                order_.set_busy(one);
                return void(std::erase(idle_, &one));
            case 3:
                one.stays = random_() % 4 > 0;
                return;
            case 4:
                return expect_longest(nullptr);
            case 5:
                return expect_longest(&clients[random_() % 3]);
            default:
                order_.set_idle(one);
                if (one.is_in) set_idle(one);
        }
        for (const address& client : clients)
            EXPECT_EQ(order_.count(client), std::ranges::count_if(all_, [&](const auto& each) {
                          return each->is_in && each->client == client;
                      }));
    }

  private:
    void set_idle(entry& one) {
        std::erase(idle_, &one);
        idle_.push_back(&one);
    }
    /// Each look at one that stays makes it the last; there are 16 looks at most.
    entry* longest(const address* client, std::size_t& looks) {
        for (; looks < 16; ++looks) {
            const auto of_client = [&](const entry* each) { return client == nullptr || each->client == *client; };
            const auto first = std::ranges::find_if(idle_, of_client);
            if (first == idle_.end()) return nullptr;
            if (!(*first)->stays) return ++looks, *first;
            set_idle(**first);
        }
        return nullptr;
    }
    void expect_longest(const address* client) {
        std::size_t wanted_looks = 0;
        std::size_t looks = 0;
        const entry* const wanted = longest(client, wanted_looks);
        EXPECT_EQ(order_.longest(client, [&](const entry& each) { return ++looks, !each.stays; }), wanted);
        EXPECT_EQ(looks, wanted_looks);
    }

    static inline const std::array clients{boost::asio::ip::make_address("1.1.1.1"),
                                           boost::asio::ip::make_address("2.2.2.2"),
                                           boost::asio::ip::make_address("::1")};
    std::mt19937 random_;
    std::vector<std::unique_ptr<entry>> all_;
    idle_order<entry> order_;
    std::vector<entry*> idle_;
};

TEST(doors_idle_order, the_longest_idle_connection_ends_after_few_looks) {
    for (unsigned seed = 0; seed < 100 && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        idle_sequence random(seed);
        for (int i = 0; i < 500 && !::testing::Test::HasFailure(); ++i) random.step();
    }
}

}  // namespace
}  // namespace accel::examples::serving::doors
