// SPDX-License-Identifier: Apache-2.0
// Which of several servers gets a call of a pool.
#include "pool_rig.hpp"

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class balances : public pools {
  protected:
    [[nodiscard]] static bool has(shelf& held, std::size_t count) {
        return eventually([&] { return held.size() >= count; });
    }
};

TEST_P(balances, calls_go_to_hosts_in_turn) {
    const server first = serve(place("first"), names_itself("first"));
    const server second = serve(place("second"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}));
    for (int i = 0; i < 5; ++i) EXPECT_EQ(ask(pool), i % 2 == 0 ? "first" : "second");
    EXPECT_EQ(pool.statistics().made, 2U);
}

TEST_P(balances, least_loaded_host_gets_the_next_call) {
    shelf held;
    const server first = serve(place("slow"), held.keeper());
    const server second = serve(place("quick"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}) + "?balance=least-loaded");
    for (int round = 0; round < 2; ++round) {
        auto slow = std::make_unique<shared_call>(pool.submit({}).value());
        ASSERT_TRUE(has(held, 1));
        for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(pool), "second");
        slow.reset();  // which cancels it
        auto next = pool.submit({});
        ASSERT_TRUE(next) << next.error().message;
        EXPECT_TRUE(has(held, 2)) << "a cancelled call does not count";
        for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(pool), "second");
        held.answer_all();
        EXPECT_TRUE(next->wait().ok());
    }
}

TEST_P(balances, hosts_share_the_number_of_channels) {
    const server first = serve(place("first"));
    const server second = serve(place("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}), {.max_channels = 2});
    const auto call_both = [&](std::size_t) {
        for (int i = 0; i < 2; ++i) EXPECT_EQ(ask(pool, "x"), "x");
    };
    call_both(0);
    in_threads(1, call_both);
    EXPECT_EQ(pool.statistics().made, 2U);
}

TEST_P(balances, calls_with_the_same_key_go_to_the_same_host_while_it_is_there) {
    std::array<std::optional<server>, 3> servers;
    for (std::size_t i = 0; i < servers.size(); ++i) {
        const std::string name = std::to_string(i);
        servers[i].emplace(serve(place(name), names_itself(name)));
    }
    channel_pool pool = pool_to(joined({where(*servers[0]), where(*servers[1]), where(*servers[2])}),
                                {.host_pause = 1h, .balance = pool_balance::sticky});
    const auto answers = [&] {
        std::string out;
        for (int key = 0; key < 30; ++key) {
            const std::string text = "user " + std::to_string(key);
            const auto answer = pool.call({}, {.balance_key = text});
            out += answer ? text_of(answer->response) : "?";
        }
        return out;
    };
    const std::string before = answers();
    for (const char name : {'0', '1', '2'}) EXPECT_NE(before.find(name), std::string::npos) << before;
    EXPECT_EQ(answers(), before);
    std::string elsewhere;
    std::thread([&] { elsewhere = answers(); }).join();
    EXPECT_EQ(elsewhere, before) << "from any thread";
    const std::string without_key = ask(pool) + ask(pool) + ask(pool);
    EXPECT_EQ(std::set<char>(without_key.begin(), without_key.end()).size(), 3U) << "by turn: " << without_key;
    servers[1].reset();
    (void)answers();  // some calls may meet the loss
    const std::string after = answers();
    for (std::size_t i = 0; i < before.size(); ++i) {
        if (before[i] == '1') {
            EXPECT_TRUE(after[i] == '0' || after[i] == '2') << after;
        } else {
            EXPECT_EQ(after[i], before[i]) << "key " << i;
        }
    }
}

TEST_P(balances, calls_go_to_the_next_host_if_one_is_full) {
    server_options options;
    options.max_sessions = 1;
    options.peer_timeout = patience(2s);
    options.security.insecure = true;
    auto full = server::listen(ctx, {place("full")}, names_itself("full"), options);
    ASSERT_TRUE(full) << full.error().message;
    const server other = serve(place("other"), names_itself("other"));
    std::optional<channel> guest{channel::connect(ctx, where(*full), client_options()).value()};
    channel_pool pool = pool_to(joined({where(*full), where(other)}), {.host_pause = 20ms});
    for (int i = 0; i < 6; ++i) EXPECT_EQ(ask(pool), "other");
    guest.reset();
    EXPECT_TRUE(eventually([&] { return ask(pool) == "full"; })) << "it has room now";
}

ACCEL_OVER_EVERY_TRANSPORT(balances);

}  // namespace
}  // namespace accel::tests
