// SPDX-License-Identifier: Apache-2.0
// Which of a pool's hosts gets a call.
#include "core/client/pool_choice.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

class choices : public ::testing::Test {
  protected:
    using seats = std::vector<std::shared_ptr<pool_seat>>;

    [[nodiscard]] static seats to(const std::string& hosts) {
        seats out;
        const std::vector<uri> named = parse_client_uris("tcp://" + hosts).value();
        for (const uri& each : named) out.push_back(std::make_shared<pool_seat>(std::make_shared<pool_host>(each), 0));
        return out;
    }
    /// The hosts of `count` calls, or of one call that tries as many.
    [[nodiscard]] std::string take(std::size_t count, pool_balance how, std::uint64_t key = 0, bool one_call = false) {
        std::string out;
        std::uint64_t tried = 0;
        for (std::size_t n = 0; n < count; ++n) {
            const std::size_t i = choice.next(how, key, tried);
            if (i == pool_choice::none) return out + "-";
            if (one_call) tried |= pool_choice::bit(i);
            out += choice.seat(i)->host->at.host;
        }
        return out;
    }

    pool_choice choice{0};
};

TEST_F(choices, go_round_and_past_hosts_that_are_left_out) {
    const seats all = to("a:1,b:1,c:1");
    choice.list(all);
    EXPECT_EQ(take(7, pool_balance::round_robin), "abcabca");
    all[1]->host->out = true;
    EXPECT_EQ(take(6, pool_balance::round_robin), "cacaca");
    EXPECT_EQ(take(4, pool_balance::round_robin, 0, true), "cab-") << "one call tries it last";
    for (const auto& each : all) each->host->out = true;
    EXPECT_EQ(take(3, pool_balance::round_robin), "cab") << "all are tried if all are out";
}

TEST_F(choices, go_to_the_only_host_or_nowhere) {
    EXPECT_EQ(take(1, pool_balance::round_robin), "-");
    const seats one = to("a:1");
    choice.list(one);
    for (const auto how : {pool_balance::round_robin, pool_balance::least_loaded, pool_balance::sticky}) {
        EXPECT_EQ(take(2, how, 7), "aa");
        EXPECT_EQ(take(2, how, 7, true), "a-");
    }
    one[0]->host->out = true;
    EXPECT_EQ(take(2, pool_balance::round_robin), "aa");
}

TEST_F(choices, go_to_the_host_with_the_fewest_calls_and_round_if_they_have_equally_many) {
    const seats all = to("a:1,b:1,c:1");
    choice.list(all);
    EXPECT_EQ(take(4, pool_balance::least_loaded), "abca");
    all[0]->host->in_flight = 2;
    all[1]->host->in_flight = 1;
    all[2]->host->in_flight = 3;
    EXPECT_EQ(take(3, pool_balance::least_loaded), "bbb");
    EXPECT_EQ(take(4, pool_balance::least_loaded, 0, true), "bac-");
    all[1]->host->out = true;
    EXPECT_EQ(take(2, pool_balance::least_loaded), "aa");
}

TEST_F(choices, with_a_key_stay_unless_their_host_goes) {
    constexpr std::uint64_t keys = 4'000;
    const auto of_keys = [&] {
        std::string out;
        for (std::uint64_t key = 1; key <= keys; ++key) out += take(1, pool_balance::sticky, key);
        return out;
    };
    const seats all = to("a:1,b:1,c:1,d:1");
    choice.list(all);
    const std::string before = of_keys();
    for (const char host : std::string{"abcd"}) {
        const auto here = std::ranges::count(before, host);
        EXPECT_GT(here, 800) << host;
        EXPECT_LT(here, 1'200) << host;
    }
    choice.list(to("d:1,c:1,b:1,a:1"));
    EXPECT_EQ(of_keys(), before) << "the order of the hosts does not count";
    choice.list(to("a:1,b:1,c:1"));
    const std::string without = of_keys();
    choice.list(all);
    all[3]->host->out = true;
    EXPECT_EQ(of_keys(), without) << "left out is as gone";
    std::size_t moved_to_a = 0;
    for (std::size_t i = 0; i < keys; ++i) {
        if (before[i] == 'd') {
            moved_to_a += without[i] == 'a' ? 1U : 0U;
        } else {
            ASSERT_EQ(without[i], before[i]) << "key " << i + 1;
        }
    }
    EXPECT_GT(moved_to_a, 250U) << "its keys go to all others";
    EXPECT_EQ(take(4, pool_balance::sticky), "abca") << "without a key, by turn";
}

TEST_F(choices, share_bits_if_there_are_more_than_64_hosts) {
    std::string hosts = "h0:1";
    for (int i = 1; i < 64; ++i) hosts += ",h" + std::to_string(i) + ":1";
    seats all = to(hosts);
    for (const auto& each : to("x:1,y:1")) all.push_back(each);
    choice.list(all);
    EXPECT_EQ(pool_choice::bit(64), 1U);
    EXPECT_EQ(take(70, pool_balance::round_robin, 0, true).back(), '-') << "a call ends";
}

TEST(pool_keys, are_0_only_without_a_text) {
    EXPECT_EQ(pool_choice::key_of(""), 0U);
    EXPECT_NE(pool_choice::key_of("a"), 0U);
    EXPECT_NE(pool_choice::key_of("a"), pool_choice::key_of("b"));
}

}  // namespace
}  // namespace accel::core
