// SPDX-License-Identifier: Apache-2.0
// A gateway to the servers of a name (`dns+`): all of its addresses, and what happens when it has others.
#include "callers.hpp"
#include "held_exchanges.hpp"
#include "named_servers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class gateway_names : public ::testing::Test {
  protected:
    void start(std::size_t i) {
        behind_.start(i, [this, i](exchange one) {
            ++seen_.at(i);
            answer_changed(std::move(one));
        });
    }
    [[nodiscard]] gateway_process open(const std::string& refresh = "20ms", const std::string& balance = "round-robin",
                                       const std::string& spin = "50us") {
        return gateway_process({"--listen", any_uri("tcp"), "--to", behind_.uri(), "--dns-refresh", refresh,
                                "--balance", balance, "--spin", spin},
                               ACCEL_TEST_GATEWAY_OF_NAMES);
    }
    /// Calls one after the other until each of these servers, and no other, has had one.
    [[nodiscard]] bool are_used(channel& by, const std::vector<std::size_t>& servers) {
        return eventually([&] {
            const std::array before{seen_[0].load(), seen_[1].load(), seen_[2].load(), seen_[3].load()};
            for (std::size_t i = 0; i < servers.size(); ++i) EXPECT_EQ(call_once(by, i), status::ok);
            for (std::size_t i = 0; i < seen_.size(); ++i)
                if ((seen_[i] > before[i]) != (std::ranges::count(servers, i) > 0)) return false;
            return true;
        });
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    named_servers behind_{ctx_};
    std::array<std::atomic<std::uint64_t>, named_servers::most> seen_{};
};

TEST_F(gateway_names, gateway_that_never_sleeps_takes_new_servers_and_signals) {
    start(0);
    behind_.name({0});
    gateway_process between = open("20ms", "round-robin", "1h");
    channel to = connect(ctx_, between.uri());
    ASSERT_TRUE(are_used(to, {0}));
    start(1);
    behind_.name({1});
    ASSERT_TRUE(are_used(to, {1}));
    EXPECT_TRUE(between.stop().is_object());
}

TEST_F(gateway_names, requests_go_in_turn_to_the_servers_that_a_name_has) {
    for (std::size_t i = 0; i < 3; ++i) start(i);
    behind_.name({0});
    gateway_process between = open();
    channel to = connect(ctx_, between.uri());
    EXPECT_EQ(call_once(to, 1), status::ok);
    for (const std::vector<std::size_t>& now : std::vector<std::vector<std::size_t>>{{0, 1}, {1, 2}, {0, 1, 2}}) {
        behind_.name(now);
        ASSERT_TRUE(are_used(to, now));
        const std::array before{seen_[0].load(), seen_[1].load(), seen_[2].load()};
        for (std::size_t i = 0; i < 10 * now.size(); ++i) ASSERT_EQ(call_once(to, i), status::ok);
        for (const std::size_t i : now) EXPECT_EQ(seen_[i] - before[i], 10U) << i;
    }
    EXPECT_EQ(between.stop().at("errors"), nlohmann::json::object());
}

TEST_F(gateway_names, removed_server_finishes_its_calls) {
    held_exchanges held;  // the first; others are answered
    behind_.start(0, [&](exchange one) {
        if (seen_[0]++ == 0) return held.keep(std::move(one));
        answer_changed(std::move(one));
    });
    start(1);
    behind_.name({0});
    gateway_process between = open();
    channel to = connect(ctx_, between.uri());
    const auto call = to.begin();
    ASSERT_EQ(call.code(), status::ok);
    fill(call->request.first(100), 7);
    ASSERT_EQ(to.submit(call->id, 100, {.timeout = patience(60s)}), status::ok);
    ASSERT_TRUE(held.wait_for(1));
    behind_.name({1});
    channel other = connect(ctx_, between.uri());
    ASSERT_TRUE(are_used(other, {1}));
    EXPECT_EQ(held.size(), 1U);
    EXPECT_GT(behind_.sessions(0), 0U) << "it has a call";
    answer_changed(held.take());
    completion c;
    ASSERT_EQ(to.wait({&c, 1}, until_hung()), 1U);
    EXPECT_EQ(c.status, status::ok) << to_string(c.status);
    EXPECT_TRUE(is_changed(c.response, 7, 100));
    EXPECT_TRUE(eventually([&] { return behind_.sessions(0) == 0; })) << "it has none";
}

TEST_F(gateway_names, a_name_that_cannot_be_resolved_keeps_its_servers) {
    start(0);
    start(1);
    behind_.name({0});
    gateway_process between = open();
    channel to = connect(ctx_, between.uri());
    const std::uint64_t opened = behind_.opened(0);
    behind_.name({});
    const std::size_t before = lookups_of(behind_.name());
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(call_once(to, 1), status::ok);
        return lookups_of(behind_.name()) >= before + 3;
    })) << "two have ended";
    behind_.name({0, 1});
    EXPECT_TRUE(are_used(to, {0, 1}));
    EXPECT_EQ(behind_.opened(0), opened) << "it was left";
}

TEST_F(gateway_names, a_name_may_be_unknown_at_the_start) {
    start(0);
    start(1);
    behind_.name({});
    EXPECT_ANY_THROW(gateway_process({"--listen", any_uri("tcp"), "--to", behind_.uri(), "--patience", "200ms"},
                                     ACCEL_TEST_GATEWAY_OF_NAMES));
    server beside = listen(ctx_, any_uri("tcp"), answer_changed);
    gateway_process between({"--listen", any_uri("tcp"), "--to", behind_.uri(), "--to",
                             client_uri(beside.endpoints().at(0)), "--dns-refresh", "20ms"},
                            ACCEL_TEST_GATEWAY_OF_NAMES);
    channel to = connect(ctx_, between.uri());
    EXPECT_EQ(call_once(to, 1), status::ok);
    behind_.name({1, 0});
    EXPECT_TRUE(eventually([&] {
        EXPECT_EQ(call_once(to, 1), status::ok);
        return seen_[0] > 0 && seen_[1] > 0;
    }));
}

TEST_F(gateway_names, silent_server_delays_no_lookup) {
    start(0);
    start(1);
    const auto silence = behind_.silence(2);
    behind_.name({2, 0});
    gateway_process between({"--listen", any_uri("tcp"), "--to", behind_.uri() + "&connect_retry=1h", "--dns-refresh",
                             "20ms", "--patience", "4s"},
                            ACCEL_TEST_GATEWAY_OF_NAMES);
    channel to = connect(ctx_, between.uri());
    ASSERT_TRUE(are_used(to, {0}));
    ASSERT_TRUE(eventually([&] { return silence->is_asked(); }));
    const std::size_t before = lookups_of(behind_.name());
    EXPECT_TRUE(eventually([&] { return lookups_of(behind_.name()) >= before + 3; }));
    behind_.name({2, 1});
    EXPECT_TRUE(are_used(to, {1}));
}

TEST_F(gateway_names, a_lost_server_makes_the_gateway_look_for_others) {
    start(0);
    start(1);
    behind_.name({0, 1});
    gateway_process between = open("1h");
    channel to = connect(ctx_, between.uri());
    ASSERT_TRUE(are_used(to, {0, 1}));
    start(2);
    behind_.name({1, 2});
    behind_.stop(0);
    EXPECT_TRUE(are_used(to, {1, 2}));
}

/// What a rolling update of a service does, and worse. Servers stop before their name says so, or after it.
TEST_F(gateway_names, no_call_fails_while_a_name_changes_under_load) {
    start(0);
    behind_.name({0});
    gateway_process between = open();
    callers load(ctx_, between.uri(), 4);
    std::minstd_rand random(7);
    unsigned have = 1;
    for (int round = 0; round < 16 && load.failed() == 0; ++round) {
        SCOPED_TRACE(round);
        const unsigned want = 1 + static_cast<unsigned>(random()) % ((1U << named_servers::most) - 1);
        std::vector<std::size_t> named;
        for (std::size_t i = 0; i < named_servers::most; ++i) {
            if ((want >> i & 1) == 0) continue;
            named.push_back(i);
            if (!behind_.runs(i)) start(i);
        }
        const auto stop_others = [&] {
            for (std::size_t i = 0; i < named_servers::most; ++i)
                if (behind_.runs(i) && (want >> i & 1) == 0) behind_.stop(i);
        };
        const bool stops_first = random() % 2 == 0 && (want & have) != 0;
        if (stops_first) stop_others();
        behind_.name(named);
        const std::array before{seen_[0].load(), seen_[1].load(), seen_[2].load(), seen_[3].load()};
        ASSERT_TRUE(eventually(
            patience(60s),
            [&] { return std::ranges::all_of(named, [&](std::size_t i) { return seen_[i] >= before[i] + 20; }); }, 1ms))
            << "all that the name has are used";
        if (!stops_first) stop_others();
        have = want;
    }
    load.end();
    EXPECT_EQ(load.failed(), 0U) << load.last_failure();
    EXPECT_EQ(between.stop().at("answers"), load.done());
}

}  // namespace
}  // namespace accel::tests
