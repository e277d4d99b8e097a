// SPDX-License-Identifier: Apache-2.0
// The accounts a verbs link keeps: its send queue, its receives, its links by queue pair number.
#include "backends/rdma/poller.hpp"
#include "verbs/path.hpp"
#include "verbs/queues.hpp"

#include <array>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace accel::verbs {
namespace {

using namespace std::chrono_literals;

/// Also where the counters wrap around.
TEST(verbs_send_queue_credits, credits_never_exceed_the_queue_and_never_run_dry) {
    std::minstd_rand random(3);
    for (const auto& [depth, reserve] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
             {4, 1}, {4, 4}, {5, 2}, {16, 4}, {16, 8}, {31, 30}, {256, 64}, {256, 1000}}) {
        send_queue_credits credits(depth, reserve);
        std::deque<std::uint32_t> asked;  // numbers of the requests whose completion was asked for
        constexpr std::uint32_t before_the_wrap = 0xffff'fff0;
        std::uint32_t posted = before_the_wrap;
        std::uint32_t completed = before_the_wrap;
        credits.post(before_the_wrap, true);
        credits.complete(before_the_wrap);
        for (int step = 0; step < 20'000; ++step) {
            const auto count = static_cast<std::uint32_t>(1 + random() % (depth / 4));
            if (credits.has_room(count) && random() % 3 != 0) {
                const bool signalled = credits.signal_due(count);
                if (signalled) asked.push_back(credits.number_of_last(count));
                credits.post(count, signalled);
                posted += count;
                ASSERT_LE(posted - completed, depth);
            } else if (!asked.empty()) {
                completed = asked.front();
                credits.complete(completed);
                asked.pop_front();
            } else {
                ASSERT_TRUE(credits.has_room(count)) << "full, and no completion will ever come";
            }
            ASSERT_EQ(credits.in_queue(), posted - completed);
            ASSERT_EQ(credits.room(), depth - (posted - completed));
            ASSERT_EQ(credits.idle(), posted == completed);
        }
        EXPECT_LT(posted, before_the_wrap) << "it has wrapped";
    }
}

TEST(verbs_send_queue_credits, completions_are_requested_as_seldom_as_the_reserve_allows) {
    send_queue_credits credits(16, 8);
    std::uint32_t asked = 0;
    for (std::uint32_t i = 0; i < 64; ++i) {
        const bool signalled = credits.signal_due(1);
        credits.post(1, signalled);
        if (signalled) ++asked;
        if (signalled) credits.complete(credits.number_of_last(0));
        EXPECT_LE(credits.in_queue(), 8U);
    }
    EXPECT_EQ(asked, 8U);
}

TEST(verbs_empty_receives, posts_in_chains_and_says_how_many_went) {
    empty_receives receives;
    std::vector<std::uint32_t> lengths;
    std::uint32_t room = 1000;
    const auto post = [&](ibv_recv_wr* chain, ibv_recv_wr** failed) {
        lengths.push_back(0);
        for (; chain != nullptr; chain = chain->next) {
            if (room == 0) {
                *failed = chain;
                return 12;
            }
            --room;
            ++lengths.back();
            EXPECT_EQ(chain->num_sge, 0);
            EXPECT_EQ(chain->wr_id, 0U);
        }
        return 0;
    };
    EXPECT_EQ(receives.post(1, post), 1U);
    EXPECT_EQ(receives.post(130, post), 130U);
    EXPECT_EQ(lengths, (std::vector<std::uint32_t>{1, 64, 64, 2}));
    room = 70;
    EXPECT_EQ(receives.post(100, post), 70U);
    room = 0;
    EXPECT_EQ(receives.post(5, post), 0U);
    room = 64;
    EXPECT_EQ(receives.post(64, post), 64U) << "the chain is whole again";
}

TEST(verbs_timeout, a_timeout_is_rounded_up_to_a_power_of_two) {
    EXPECT_EQ(timeout_exponent(1ns), 1);
    EXPECT_EQ(timeout_exponent(8192ns), 1);
    EXPECT_EQ(timeout_exponent(8193ns), 2);
    EXPECT_EQ(timeout_exponent(67ms), 14) << "4.096 us * 2^14 = 67.1 ms";
    EXPECT_EQ(timeout_exponent(1h), 30);
    EXPECT_EQ(timeout_exponent(100h), 31) << "the longest there is";
}

/// Pointers that are told apart and never followed.
rdma::rdma_link& link_at(std::uint32_t i) {
    constexpr std::size_t step = alignof(rdma::rdma_link);
    alignas(step) static std::array<std::byte, 4096 * step> places;
    return *reinterpret_cast<rdma::rdma_link*>(&places.at(i * step));
}

TEST(rdma_link_table, the_table_finds_what_a_map_finds) {
    rdma::link_table table;
    std::map<std::uint32_t, rdma::rdma_link*> model;
    std::minstd_rand random(11);
    for (int step = 0; step < 50'000; ++step) {
        const auto number = static_cast<std::uint32_t>((random() % 600) * (random() % 2 == 0 ? 1 : 16));
        if (random() % 2 == 0 && !model.contains(number)) {
            rdma::rdma_link& link = link_at(static_cast<std::uint32_t>(random() % 4096));
            table.add(number, link);
            model[number] = &link;
        } else {
            table.remove(number);
            model.erase(number);
        }
        ASSERT_EQ(table.size(), model.size());
        const auto asked = static_cast<std::uint32_t>(random() % 9600);
        const auto found = model.find(asked);
        ASSERT_EQ(table.find(asked), found == model.end() ? nullptr : found->second);
    }
    for (const auto& [number, link] : model) EXPECT_EQ(table.find(number), link);
    std::size_t visited = 0;
    table.for_each([&](rdma::rdma_link&) { ++visited; });
    EXPECT_EQ(visited, model.size());
}

}  // namespace
}  // namespace accel::verbs
