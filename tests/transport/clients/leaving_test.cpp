// SPDX-License-Identifier: Apache-2.0
// How clients leave a server: one that drains, one that restarts, and one whose handler never answers.
#include "client_rig.hpp"

#include <atomic>
#include <future>
#include <vector>

namespace accel::tests {
namespace {

class leaving : public client_rig {
  protected:
    [[nodiscard]] channel connect(const std::string& uri, const channel_options& options = client_options()) {
        auto made = channel::connect(ctx, uri, options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] channel_pool pool_to(const std::string& uri, const channel_options& options = client_options()) {
        auto made = channel_pool::open(ctx, uri, options);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] static call_id send(channel& with, std::chrono::nanoseconds timeout = {}) {
        const auto call = with.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(with.submit(call->id, 8, {.timeout = timeout}), status::ok);
        return call->id;
    }
    /// What `begin` says, without keeping a slot.
    [[nodiscard]] static status begins(channel& with) {
        EXPECT_EQ(with.poll({}), 0U);
        const auto call = with.begin();
        const status said = call.code();
        if (said == status::ok) {
            EXPECT_EQ(with.release(call->id), status::ok);
        }
        return said;
    }
    /// The status of the next completion, which is released.
    [[nodiscard]] static status ends(channel& with) {
        completion ended;
        if (with.wait({&ended, 1}, patience(30s)) != 1) return status::again;
        return ended.status;
    }
};

TEST_P(leaving, draining_server_begins_no_calls_and_answers_those_in_flight) {
    shelf kept;
    server there = serve(place("drain"), kept.keeper());
    channel client = connect(where(there));
    (void)send(client);
    ASSERT_TRUE(eventually(30s, [&] { return kept.size() == 1; }));
    EXPECT_EQ(there.drain(0ns), status::timed_out);
    EXPECT_TRUE(eventually(30s, [&] { return begins(client) == status::closed; }));
    EXPECT_FALSE(client.connected());
    EXPECT_EQ(client.take_event(), channel_event::none) << "a call is in flight";
    kept.answer_all();
    EXPECT_EQ(ends(client), status::ok);
    EXPECT_EQ(there.drain(patience(30s)), status::ok);
    EXPECT_TRUE(eventually(30s, [&] { return client.poll({}) == 0 && client.take_event() == channel_event::lost; }));
    EXPECT_TRUE(eventually(30s, [&] { return there.statistics().sessions == 0; })) << "its client has left";
    EXPECT_EQ(there.statistics().sessions_lost, 0U);
}

/// Nobody polls; `wait` and an event loop notice as well.
TEST_P(leaving, a_sleeping_channel_is_woken_once_by_a_drain) {
    server there = serve(place("sleeps"));
    channel client = connect(where(there));
    (void)client.event_fd();
    EXPECT_EQ(there.drain(patience(30s)), status::ok);
    EXPECT_EQ(client.wait({}, patience(60s)), 0U) << "it ends when nothing is in flight on a lost channel";
    EXPECT_FALSE(client.connected());
    EXPECT_EQ(begins(client), status::closed);
}

TEST_P(leaving, reconnecting_channel_goes_to_the_next_host) {
    server first = serve(place("one"), names_itself("one"));
    server second = serve(place("two"), names_itself("two"));
    channel_options options = client_options();
    options.reconnect = true;
    channel client = connect(joined({where(first), where(second)}), options);
    EXPECT_EQ(first.drain(patience(30s)), status::ok);
    ASSERT_TRUE(eventually(30s, [&] {
        auto answer = client.call({});
        return answer && text_of(answer->response) == "two";
    }));
    EXPECT_EQ(client.endpoint(), where(second));
    EXPECT_TRUE(eventually(30s, [&] { return first.statistics().sessions == 0; }));
}

TEST_P(leaving, closing_pool_waits_for_calls_at_a_server_that_drains) {
    shelf kept;
    server first = serve(place("first"), kept.keeper());
    const server second = serve(place("second"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}));
    auto call = pool.submit(bytes_of("x"));
    ASSERT_TRUE(call) << call.error().message;
    ASSERT_TRUE(eventually([&] { return kept.size() == 1; }));
    EXPECT_EQ(first.drain(0ns), status::timed_out);
    EXPECT_TRUE(eventually([&] {
        const auto answer = pool.call({});
        return answer && text_of(answer->response) == "second" && pool.statistics().lost == 1;
    }));
    EXPECT_EQ(pool.close(1ms), status::timed_out);
    EXPECT_EQ(call->wait().code(), status::closed);
    kept.answer_all();
}

/// Also with channels at which no thread looks.
TEST_P(leaving, pool_leaves_a_draining_server_with_all_channels) {
    server first = serve(place("drains"), names_itself("first"));
    const server second = serve(place("other"), names_itself("second"));
    auto pool = channel_pool::open(ctx, joined({where(first), where(second)}), client_options(), {.host_pause = 20ms});
    ASSERT_TRUE(pool) << pool.error().message;
    std::promise<void> called;
    std::promise<void> left;
    const auto call_both = [&] {
        for (int i = 0; i < 2; ++i) EXPECT_TRUE(pool->call({}).ok());
    };
    std::thread idle([&] {
        call_both();
        called.set_value();
        left.get_future().wait();
    });
    called.get_future().wait();
    call_both();
    EXPECT_EQ(first.statistics().sessions, 2U);
    (void)first.drain(0ns);
    EXPECT_TRUE(eventually([&] {
        call_both();
        return first.statistics().sessions == 0;
    }));
    left.set_value();
    idle.join();
}

TEST_P(leaving, closing_pool_waits_for_calls_of_a_thread_that_has_left) {
    shelf kept;
    server there = serve(place("left"), kept.keeper());
    channel_pool pool = pool_to(where(there));
    auto call = pool.submit(bytes_of("x"));
    ASSERT_TRUE(call) << call.error().message;
    ASSERT_TRUE(eventually([&] { return kept.size() == 1; }));
    EXPECT_EQ(there.drain(0ns), status::timed_out);
    for (int look = 0; look < 30; ++look) {  // in one of them the channel notices the drain
        EXPECT_FALSE(call->done());
        std::this_thread::sleep_for(10ms);
    }
    EXPECT_EQ(pool.leave(), status::ok);
    if (pool.statistics().channels > 0) GTEST_SKIP() << "the channel has not noticed the drain yet";
    EXPECT_EQ(pool.close(1ms), status::timed_out);
    EXPECT_EQ(call->wait().code(), status::closed);
    kept.answer_all();
}

TEST_P(leaving, pool_loses_no_call_while_one_server_after_the_other_restarts) {
    const auto slow_echo = [](exchange one) {
        std::this_thread::sleep_for(100us);
        echo_back(std::move(one));
    };
    std::array<std::optional<server>, 2> servers;
    servers[0].emplace(serve(place("a"), slow_echo));
    servers[1].emplace(serve(place("b"), slow_echo));
    const std::array uris{where(*servers[0]), where(*servers[1])};
    channel_pool pool = pool_to(joined({uris[0], uris[1]}));
    std::atomic<bool> stop{false};
    std::atomic<int> failed{0};
    std::array<std::atomic<std::uint64_t>, 3> answered{};
    std::mutex mutex;
    std::string why;
    std::vector<std::thread> users;
    for (std::size_t i = 0; i < answered.size(); ++i) {
        users.emplace_back([&, i] {
            while (!stop) {
                auto answer = pool.call(bytes_of("call"));
                if (answer && text_of(answer->response) == "call") {
                    ++answered[i];
                    continue;
                }
                ++failed;
                const std::lock_guard lock(mutex);
                why = answer ? "wrong bytes" : answer.error().message;
            }
        });
    }
    const auto all_go_on = [&] {
        std::array<std::uint64_t, answered.size()> before{};
        std::ranges::transform(answered, before.begin(), [](const auto& each) { return each.load(); });
        return eventually(30s, [&] {
            return std::ranges::equal(answered, before, [](const auto& now, auto was) { return now >= was + 20; });
        });
    };
    EXPECT_TRUE(all_go_on());
    for (int round = 0; round < 4; ++round) {
        const std::size_t which = static_cast<std::size_t>(round) % servers.size();
        servers[which]->stop();
        servers[which].reset();
        EXPECT_TRUE(all_go_on()) << "with one server in round " << round;
        servers[which].emplace(serve(uris[which], slow_echo));
    }
    stop = true;
    for (std::thread& each : users) each.join();
    EXPECT_EQ(failed, 0) << why;
}

TEST_P(leaving, pool_offers_nothing_twice_that_a_handler_has_seen) {
    shelf kept;
    std::atomic<int> elsewhere{0};
    std::optional<server> first;
    {
        server_options options;
        options.drain_timeout = 1ms;
        options.peer_timeout = patience(2s);
        options.security.insecure = true;
        auto made = server::listen(ctx, {place("seen")}, kept.keeper(), options);
        ASSERT_TRUE(made) << made.error().message;
        first.emplace(std::move(*made));
    }
    const server second = serve(place("other"), [&](exchange one) {
        ++elsewhere;
        echo_back(std::move(one));
    });
    channel_pool pool = pool_to(joined({where(*first), where(second)}));
    status said = status::ok;
    std::thread user([&] { said = pool.call(bytes_of("once")).code(); });
    EXPECT_TRUE(eventually(30s, [&] { return kept.size() == 1; }));
    first->stop();
    user.join();
    EXPECT_EQ(said, status::peer_lost) << "whether it was done is unknown";
    EXPECT_EQ(elsewhere, 0);
    EXPECT_TRUE(pool.call(bytes_of("again")).ok());
    kept.answer_all();
}

TEST_P(leaving, pool_goes_on_while_its_thread_keeps_a_response) {
    std::optional<server> first(serve(place("kept"), names_itself("first")));
    const server second = serve(place("next"), names_itself("second"));
    channel_pool pool =
        channel_pool::open(ctx, joined({where(*first), where(second)}), client_options(), {.max_channels = 1}).value();
    {
        auto kept = pool.call({});
        ASSERT_TRUE(kept) << kept.error().message;
        first.reset();
        for (int i = 0; i < 3; ++i) {
            auto answer = pool.call({});
            ASSERT_TRUE(answer) << answer.error().message;
            EXPECT_EQ(text_of(answer->response), "second");
        }
        EXPECT_EQ(text_of(kept->response), "first");
    }
    EXPECT_EQ(pool.statistics().channels, 1U);
    EXPECT_EQ(pool.statistics().lost, 1U);
    EXPECT_EQ(pool.close(patience(30s)), status::ok);
}

/// Its calls in flight stay where they are.
TEST_P(leaving, pool_goes_on_while_its_thread_has_calls_in_flight) {
    shelf kept;
    server first = serve(place("flight"), kept.keeper());
    const server second = serve(place("next"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}));
    auto in_flight = pool.submit(bytes_of("first"));
    ASSERT_TRUE(in_flight) << in_flight.error().message;
    ASSERT_TRUE(eventually(patience(30s), [&] { return kept.size() == 1; }));
    EXPECT_EQ(first.drain(0ns), status::timed_out);
    for (int i = 0; i < 2; ++i) {
        auto answer = pool.call({});
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(text_of(answer->response), "second");
    }
    kept.answer_all();
    auto ended = in_flight->wait();
    ASSERT_TRUE(ended) << ended.error().message;
    EXPECT_EQ(text_of(ended->response), "first");
    EXPECT_EQ(pool.statistics().channels, 1U);
}

TEST_P(leaving, pool_keeps_a_server_whose_handler_says_closed) {
    std::atomic<int> seen{0};
    const server there = serve(place("says"), [&](exchange one) {
        ++seen;
        (void)one.fail(status::closed, 0, "mine has closed");
    });
    channel_pool pool = pool_to(where(there));
    const auto answer = pool.call({});
    ASSERT_EQ(answer.code(), status::closed);
    EXPECT_EQ(answer.error().message, "closed: mine has closed");
    EXPECT_EQ(seen, 1);
    EXPECT_EQ(pool.statistics().lost, 0U);
    EXPECT_EQ(pool.statistics().hosts_out, 0U);
}

class never_answering : public leaving {
  protected:
    [[nodiscard]] static channel_options brief_quarantine() {
        channel_options options = client_options();
        options.slots = 2;
        options.quarantine_timeout = 20ms;
        return options;
    }
    /// Puts slots into quarantine: their calls are cancelled once a handler has them.
    static void cancel_calls(channel& with, shelf& kept, std::size_t count) {
        const std::size_t before = kept.size();
        std::vector<call_id> sent;
        for (std::size_t i = 0; i < count; ++i) sent.push_back(send(with));
        EXPECT_TRUE(eventually(30s, [&] { return kept.size() == before + count; }));
        for (const call_id each : sent) {
            EXPECT_EQ(with.cancel(each), status::ok);
            EXPECT_EQ(ends(with), status::cancelled);
        }
    }
    /// Answers calls with a payload alone.
    [[nodiscard]] static handler answers_some(shelf& kept) {
        return [keep = kept.keeper()](exchange one) {
            one.request().size() == 8 ? keep(std::move(one)) : echo_back(std::move(one));
        };
    }
};

TEST_P(never_answering, again_says_how_many_slots_wait_for_late_answers) {
    shelf kept;
    const server there = serve(place("again"), kept.keeper());
    channel_options options = client_options();
    options.slots = 2;
    channel client = connect(where(there), options);
    cancel_calls(client, kept, 2);
    const auto refused = client.call({});
    ASSERT_EQ(refused.code(), status::again);
    EXPECT_NE(refused.error().message.find("2 of 2 slots wait for late answers"), std::string::npos)
        << refused.error().message;
    EXPECT_TRUE(client.connected());
    EXPECT_TRUE(eventually(30s, [&] { return kept.size() == 2; }));
    kept.answer_all();
    EXPECT_TRUE(eventually(30s, [&] { return begins(client) == status::ok; }));
}

TEST_P(never_answering, channel_without_any_slot_left_is_lost) {
    shelf kept;
    const server there = serve(place("lost"), kept.keeper());
    channel client = connect(where(there), brief_quarantine());
    cancel_calls(client, kept, 2);
    EXPECT_TRUE(eventually(30s, [&] { return begins(client) == status::peer_lost; }));
    EXPECT_FALSE(client.connected());
    EXPECT_TRUE(eventually(30s, [&] { return client.poll({}) == 0 && client.statistics().quarantined == 0; }));
    kept.answer_all();
}

TEST_P(never_answering, parts_get_the_slots_of_late_answers_without_a_poll) {
    shelf kept;
    const server there = serve(place("parts"), kept.keeper());
    channel_options options = client_options();
    options.slots = 3;
    channel client = connect(where(there), options);
    cancel_calls(client, kept, 1);
    const auto streamed = client.begin();
    ASSERT_EQ(streamed.code(), status::ok);
    EXPECT_EQ(client.submit(streamed->id, 4, {.parts = 3}), status::invalid_argument);
    EXPECT_EQ(client.submit(streamed->id, 4, {.parts = 2}), status::again);
    kept.answer_all();
    EXPECT_TRUE(eventually(30s, [&] { return client.submit(streamed->id, 4, {.parts = 2}) == status::ok; }));
    EXPECT_TRUE(eventually(30s, [&] { return kept.size() == 1; }));
    kept.answer_all();
    EXPECT_EQ(ends(client), status::ok);
}

TEST_P(never_answering, channel_without_slots_for_parts_is_lost) {
    shelf kept;
    const server there = serve(place("rooms"), kept.keeper());
    channel_options options = brief_quarantine();
    options.slots = 4;
    channel client = connect(where(there), options);
    cancel_calls(client, kept, 1);
    const auto streamed = client.begin();
    ASSERT_EQ(streamed.code(), status::ok);
    const auto other = client.begin();
    ASSERT_EQ(other.code(), status::ok);
    std::this_thread::sleep_for(40ms);
    EXPECT_EQ(client.submit(streamed->id, 4, {.parts = 2}), status::again) << "another slot may come back";
    EXPECT_EQ(client.release(other->id), status::ok);
    EXPECT_EQ(client.submit(streamed->id, 4, {.parts = 3}), status::peer_lost);
    EXPECT_FALSE(client.connected());
    kept.answer_all();
}

TEST_P(never_answering, slots_lent_for_parts_of_ended_calls_wait_for_late_answers) {
    shelf kept;
    const server there = serve(place("lent"), kept.keeper());
    channel client = connect(where(there), brief_quarantine());
    const auto streamed = client.begin();
    ASSERT_EQ(streamed.code(), status::ok);
    ASSERT_EQ(client.submit(streamed->id, 4, {.parts = 1}), status::ok);
    EXPECT_TRUE(eventually(30s, [&] { return kept.size() == 1; }));
    EXPECT_EQ(client.cancel(streamed->id), status::ok);
    EXPECT_EQ(ends(client), status::cancelled);
    EXPECT_TRUE(eventually(30s, [&] { return begins(client) == status::peer_lost; }));
    kept.answer_all();
}

TEST_P(never_answering, channel_with_other_slots_goes_on) {
    shelf kept;
    const server there = serve(place("some"), answers_some(kept));
    channel client = connect(where(there), brief_quarantine());
    cancel_calls(client, kept, 1);
    const auto held = client.begin();
    ASSERT_EQ(held.code(), status::ok);
    std::this_thread::sleep_for(40ms);
    EXPECT_EQ(begins(client), status::again);
    EXPECT_TRUE(client.connected());
    EXPECT_EQ(client.submit(held->id, 4), status::ok);
    EXPECT_EQ(ends(client), status::ok);
    kept.answer_all();
}

TEST_P(never_answering, reconnecting_channel_replaces_its_session_after_the_calls_in_flight) {
    shelf kept;
    const server there = serve(place("anew"), answers_some(kept));
    channel_options options = brief_quarantine();
    options.reconnect = true;
    channel client = connect(where(there), options);
    cancel_calls(client, kept, 1);
    const call_id in_flight = send(client);
    EXPECT_TRUE(eventually(30s, [&] { return kept.size() == 2; }));
    EXPECT_TRUE(eventually(30s, [&] { return begins(client) == status::peer_lost; }));
    EXPECT_EQ(client.statistics().reconnects, 0U) << "one call is in flight";
    EXPECT_EQ(client.cancel(in_flight), status::ok);
    EXPECT_EQ(ends(client), status::cancelled);
    EXPECT_TRUE(eventually(30s, [&] { return client.call(bytes_of("1234")).ok(); }));
    EXPECT_EQ(client.statistics().reconnects, 1U);
    EXPECT_EQ(client.statistics().quarantined, 0U);
    kept.answer_all();
}

TEST_P(never_answering, pool_goes_on_with_other_calls) {
    shelf kept;
    const server there = serve(place("pool"), answers_some(kept));
    channel_pool pool = pool_to(where(there), brief_quarantine());
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 2; ++i) {
            const std::size_t before = kept.size();
            auto call = pool.submit(bytes_of("12345678"));
            ASSERT_TRUE(call) << call.error().message;
            ASSERT_TRUE(eventually(30s, [&] { return kept.size() == before + 1; }));
            EXPECT_EQ(call->cancel(), status::ok);
            EXPECT_EQ(call->wait().code(), status::cancelled);
        }
        ASSERT_TRUE(eventually(30s, [&] { return pool.call(bytes_of("1234")).ok(); }));
    }
    EXPECT_EQ(pool.statistics().lost, 2U);
    kept.answer_all();
}

ACCEL_OVER_EVERY_TRANSPORT(leaving);
ACCEL_OVER_EVERY_TRANSPORT(never_answering);

}  // namespace
}  // namespace accel::tests
