// SPDX-License-Identifier: Apache-2.0
// Hosts of a pool that have no room for another session, lose channels or are ejected. Calls wait for none of them.
#include "pool_rig.hpp"

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace accel::tests {
namespace {

class refusing : public pools {
  protected:
    /// A server with room for this number of sessions.
    [[nodiscard]] server serve_few(const std::string& name, std::uint32_t sessions, handler service = {}) {
        server_options options;
        options.max_sessions = sessions;
        options.peer_timeout = patience(2s);
        options.security.insecure = true;
        auto made = server::listen(ctx, {place(name)}, service ? std::move(service) : names_itself(name), options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    static void call_both(channel_pool& pool) {
        for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool.call({}).ok());
    }
};

TEST_P(refusing, host_is_left_out_when_the_last_of_its_channels_is_lost) {
    server first = serve(place("drains"), names_itself("first"));
    const server second = serve(place("stays"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}), {.host_pause = 1h});
    call_both(pool);
    told_thread idle;
    idle.tell([&] { call_both(pool); });  // its channels are the newer ones
    (void)first.drain(0ns);
    EXPECT_TRUE(eventually([&] { return ask(pool) == "second" && pool.statistics().hosts_out == 1; }));
    const std::uint64_t refused = first.statistics().sessions_refused;
    for (int i = 0; i < 6; ++i) EXPECT_EQ(ask(pool), "second");
    EXPECT_EQ(first.statistics().sessions_refused, refused) << "no call connects to it";
    EXPECT_EQ(pool.statistics().lost, 2U);
}

TEST_P(refusing, ejected_host_that_has_come_back_is_left_out_when_its_channel_is_lost) {
    std::atomic<bool> fails{true};
    server first = serve(place("drains"), [&](exchange one) {
        if (fails) return (void)one.fail(status::peer_lost, 0, "away");
        names_itself("first")(std::move(one));
    });
    const server second = serve(place("stays"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}), {.host_pause = 20ms, .eject_after = 1});
    EXPECT_EQ(ask(pool), "peer_lost");
    EXPECT_EQ(pool.statistics().ejected, 1U);
    fails = false;
    EXPECT_TRUE(eventually([&] { return pool.statistics().hosts_out == 0; }));
    (void)first.drain(0ns);
    EXPECT_TRUE(eventually([&] { return ask(pool) == "second" && pool.statistics().hosts_out == 1; }));
}

TEST_P(refusing, host_stays_while_one_of_its_channels_takes_calls) {
    shelf kept;
    const server first = serve(place("late"), [&](exchange one) {
        one.request().size() == 1 ? kept.keeper()(std::move(one)) : names_itself("first")(std::move(one));
    });
    const server second = serve(place("other"), names_itself("second"));
    channel_options options = client_options();
    options.slots = 1;
    options.quarantine_timeout = 1ms;
    channel_pool pool =
        channel_pool::open(ctx, joined({where(first), where(second)}), options, {.host_pause = 1h, .eject_after = 0})
            .value();
    told_thread other;
    other.tell([&] { call_both(pool); });
    (void)ask(pool);  // the second
    EXPECT_EQ(ask(pool), "first");
    (void)ask(pool);
    {
        auto late = pool.submit(bytes_of("x"));
        ASSERT_TRUE(late) << late.error().message;
        ASSERT_TRUE(eventually([&] { return kept.size() == 1; }));
    }
    // Its only slot waits for a late answer, so that the channel is replaced.
    EXPECT_TRUE(eventually([&] { return pool.call({}).ok() && pool.statistics().lost == 1; }));
    EXPECT_EQ(pool.statistics().hosts_out, 0U) << "another thread has a channel there";
    EXPECT_NE(ask(pool), ask(pool)) << "which this one shares";
    kept.answer_all();
}

TEST_P(refusing, threads_share_channels_to_hosts_that_are_full) {
    const server first = serve_few("first", 1);
    const server second = serve_few("second", 1);
    for (const auto how : {pool_balance::round_robin, pool_balance::least_loaded}) {
        channel_pool pool = pool_to(joined({where(first), where(second)}), {.host_pause = 1h, .balance = how});
        const std::uint64_t before = first.statistics().sessions_refused + second.statistics().sessions_refused;
        call_both(pool);
        for (int round = 0; round < 3; ++round) {
            in_threads(1, [&](std::size_t) {
                for (int i = 0; i < 3; ++i) EXPECT_NE(ask(pool), ask(pool));
            });
        }
        EXPECT_EQ(pool.statistics().channels, 2U);
        EXPECT_EQ(pool.statistics().hosts_out, 0U);
        EXPECT_EQ(first.statistics().sessions_refused + second.statistics().sessions_refused, before + 2)
            << "each is asked once";
        EXPECT_EQ(pool.close(until_hung()), status::ok);
        EXPECT_TRUE(eventually([&] { return first.statistics().sessions == 0 && second.statistics().sessions == 0; }));
    }
}

TEST_P(refusing, calls_with_a_key_go_to_a_full_host_from_every_thread) {
    const server first = serve_few("first", 1);
    const server second = serve_few("second", 1);
    channel_pool pool =
        pool_to(joined({where(first), where(second)}), {.host_pause = 1h, .balance = pool_balance::sticky});
    const auto answers = [&] {
        std::string out;
        for (int key = 0; key < 20; ++key) {
            const std::string text = "user " + std::to_string(key);
            const auto answer = pool.call({}, {.balance_key = text});
            out += answer ? text_of(answer->response) : "?";
        }
        return out;
    };
    const std::string before = answers();
    in_threads(2, [&](std::size_t) { EXPECT_EQ(answers(), before); });
}

TEST_P(refusing, thread_gets_its_own_channel_once_there_is_room) {
    const server there = serve_few("room", 2);
    std::optional<channel> guest{channel::connect(ctx, where(there), client_options()).value()};
    channel_pool pool = pool_to(where(there), {.host_pause = 20ms});
    EXPECT_EQ(ask(pool), "room");
    told_thread other;
    other.tell([&] { EXPECT_EQ(ask(pool), "room"); });
    EXPECT_EQ(pool.statistics().channels, 1U) << "it shares that of this thread";
    guest.reset();
    EXPECT_TRUE(eventually([&] { return pool.statistics().channels == 2; }));
    other.tell([&] { EXPECT_EQ(ask(pool), "room"); });
    EXPECT_EQ(pool.statistics().made, 2U);
}

TEST_P(refusing, call_goes_to_an_ejected_host_if_all_others_are_lost) {
    std::atomic<bool> fails{true};
    const server first = serve_few("first", 1, [&](exchange one) {
        if (fails) return (void)one.fail(status::peer_lost, 0, "away");
        names_itself("first")(std::move(one));
    });
    std::optional<server> second(serve(place("second"), names_itself("second")));
    channel_pool pool = pool_to(joined({where(first), where(*second)}), {.host_pause = 1h, .eject_after = 1});
    EXPECT_EQ(ask(pool), "peer_lost");
    EXPECT_EQ(pool.statistics().ejected, 1U);
    EXPECT_EQ(ask(pool), "second");
    fails = false;
    second.reset();
    EXPECT_TRUE(eventually([&] { return ask(pool) == "first"; })) << "a call may meet the loss";
    for (int i = 0; i < 6; ++i) EXPECT_EQ(ask(pool), "first");
    in_threads(1, [&](std::size_t) { EXPECT_EQ(ask(pool), "first") << "which has no room for another session"; });
}

TEST_P(refusing, ejected_host_comes_back_by_the_channel_of_any_thread) {
    std::atomic<bool> fails{true};
    const server first = serve_few("first", 1, [&](exchange one) {
        if (fails) return (void)one.fail(status::peer_lost, 0, "away");
        names_itself("first")(std::move(one));
    });
    const server second = serve(place("second"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(second), where(first)}), {.host_pause = 20ms, .eject_after = 1});
    EXPECT_EQ(ask(pool), "second");
    told_thread other;
    other.tell([&] { EXPECT_EQ(ask(pool), "peer_lost"); });
    fails = false;
    EXPECT_TRUE(eventually([&] { return pool.statistics().hosts_out == 0; }));
    EXPECT_EQ(pool.statistics().made, 2U);
}

TEST_P(refusing, calls_from_before_a_host_came_back_do_not_eject_it_again) {
    shelf held;
    const server first = serve(place("hangs"), held.keeper());
    const server second = serve(place("works"), names_itself("second"));
    channel_options options = client_options();
    options.call_timeout = 4 * until_hung();
    channel_pool pool = channel_pool::open(ctx, joined({where(first), where(second)}), options,
                                           {.max_channels = 2, .host_pause = 20ms, .eject_after = 2})
                            .value();
    const auto fail = [](exchange one) { (void)one.fail(status::peer_lost, 0, "away"); };
    std::vector<std::thread> calls;
    std::atomic<int> ended{0};
    const auto begin = [&](std::size_t count) {
        const std::size_t before = held.size();
        for (std::size_t i = 0; i < count; ++i)
            calls.emplace_back([&] {
                while (pool.call({}).ok()) {
                }  // at the second host
                ++ended;
            });
        return eventually([&] { return held.size() == before + count; });
    };
    EXPECT_TRUE(begin(4));
    std::vector<exchange> old = held.with_all([](std::vector<exchange>& all) { return std::exchange(all, {}); });
    for (int i = 0; i < 2; ++i) fail(std::move(old[static_cast<std::size_t>(i)]));
    EXPECT_TRUE(eventually([&] { return ended == 2; }));
    EXPECT_EQ(pool.statistics().ejected, 1U);
    EXPECT_TRUE(eventually([&] { return pool.statistics().hosts_out == 0; }));
    for (int i = 2; i < 4; ++i) fail(std::move(old[static_cast<std::size_t>(i)]));
    EXPECT_TRUE(eventually([&] { return ended == 4; }));
    EXPECT_EQ(pool.statistics().ejected, 1U);
    EXPECT_TRUE(begin(2));
    held.answer_all(fail);
    for (std::thread& each : calls) each.join();
    EXPECT_EQ(pool.statistics().ejected, 2U) << "those from after it count";
}

TEST_P(refusing, overloaded_answers_between_failures_do_not_hide_them) {
    std::atomic<int> calls{0};
    const server first = serve(place("mixed"), [&](exchange one) {
        (void)one.fail(++calls % 2 == 0 ? status::overloaded : status::peer_lost, 0, "away");
    });
    const server second = serve(place("works"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}), {.host_pause = 1h, .eject_after = 3});
    EXPECT_TRUE(eventually([&] {
        (void)ask(pool);
        return pool.statistics().ejected == 1;
    }));
    EXPECT_EQ(calls, 5);
}

TEST_P(refusing, resolving_a_target_takes_no_turn) {
    const server first = serve(place("first"), names_itself("first"));
    const server second = serve(place("second"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}));
    const auto resolve_and_ask = [&] {
        (void)pool.resolve("some");
        return ask(pool);
    };
    for (int i = 0; i < 3; ++i) EXPECT_NE(resolve_and_ask(), resolve_and_ask());
}

/// A server that comes late is awaited by the thread that calls.
TEST_P(refusing, closing_pool_ends_connects_of_calls) {
    std::string gone;
    {
        const server there = serve(place("gone"));
        gone = where(there);
    }
    channel_options options = client_options();
    options.connect_retry = 2 * until_hung();
    options.backoff_min = options.backoff_max = until_hung() + patience(10s);
    channel_pool pool = channel_pool::open(ctx, gone, options).value();
    std::atomic<bool> ended{false};
    std::thread user([&] {
        EXPECT_EQ(pool.call({}).code(), status::closed);
        ended = true;
    });
    std::this_thread::sleep_for(50ms);  // for the thread to wait for its next try: the test holds anyway
    EXPECT_EQ(pool.close(1ms), status::ok);
    EXPECT_TRUE(eventually([&] { return ended.load(); }));
    user.join();
}

ACCEL_OVER_EVERY_TRANSPORT(refusing);

}  // namespace
}  // namespace accel::tests
