// SPDX-License-Identifier: Apache-2.0
// Lent memory has a bound: whatever the server does, a call completes by its deadline + peer_timeout, and
// after that nobody touches what was lent for it.
#include "peer_process.hpp"
#include "rig.hpp"

#include <atomic>
#include <csignal>
#include <optional>
#include <vector>

#include <poll.h>

namespace accel::tests {
namespace {

using clock = std::chrono::steady_clock;

class lending : public on_every_backend {
  protected:
    static constexpr std::size_t room = 16 << 10;

    static nanoseconds brief() { return patience(300ms); }
    /// … and for heartbeats.
    static nanoseconds silence() { return patience(1s); }
    /// The promise, and time for a loaded machine to schedule us.
    static nanoseconds bound() { return silence() + patience(10s); }

    static channel_options client_options() {
        channel_options options = calm_client();
        options.peer_timeout = silence();
        // A transport that cannot release the memory would take this long.
        options.close_timeout = patience(15s);
        options.call_timeout = patience(60s);
        return options;
    }
    /// Lends `memory`'s halves, as payload and as place for the response.
    static call_id lend(checked_channel& client, region& memory, nanoseconds timeout) {
        const slice payload = memory.part(0, room).value();
        fill(payload.bytes(), 5);
        call_view call;
        EXPECT_EQ(client.begin(call), status::ok);
        EXPECT_EQ(client.submit(
                      call.id, payload,
                      {.timeout = timeout, .tag = 1, .trace_id = 5, .response_into = memory.part(room, room).value()}),
                  status::ok);
        return call.id;
    }
    /// The given-back memory holds what its owner writes into it.
    static void expect_untouched(region& memory, held_exchanges& held) {
        fill(memory.whole().bytes(), 9);
        while (held.size() > 0) echo(held.take());
        std::this_thread::sleep_for(100ms);
        EXPECT_TRUE(matches(memory.whole().bytes(), 9)) << "a late answer was written into memory given back";
    }
};

/// Completes with `why`, within the bound after `since`.
void expect_end(checked_channel& client, status why, clock::time_point since, nanoseconds bound) {
    const completion c = client.next(until_hung());
    EXPECT_LT(clock::now() - since, bound);
    EXPECT_EQ(c.status, why) << to_string(c.status);
    EXPECT_EQ(c.tag, 1U);
    EXPECT_TRUE(c.response.empty());
    EXPECT_EQ(client.release(c.id), status::ok);
}

TEST_P(lending, an_expired_call_completes_though_no_answer_comes) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    auto client = r.connect(client_options());
    const auto start = clock::now();
    (void)lend(client, *memory, brief());
    (void)reaches_its_handler(r, held);
    expect_end(client, status::timed_out, start, brief() + bound());
    expect_untouched(*memory, held);
}

TEST_P(lending, a_cancelled_call_completes_though_no_answer_comes) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    auto client = r.connect(client_options());
    const call_id id = lend(client, *memory, patience(60s));
    ASSERT_TRUE(held.wait_for(1));
    const auto start = clock::now();
    EXPECT_EQ(client.cancel(id), status::ok);
    completion c;
    if (client.poll({&c, 1}) == 0) {
        EXPECT_EQ(client.cancel(id), status::ok) << "it has been cancelled, and completes in time";
        expect_end(client, status::cancelled, start, bound());
    } else {
        EXPECT_EQ(c.status, status::cancelled);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    expect_untouched(*memory, held);
}

TEST_P(lending, an_expired_call_may_be_cancelled) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    auto client = r.connect(client_options());
    const call_id id = lend(client, *memory, brief());
    (void)reaches_its_handler(r, held);
    completion c;
    if (client.wait({&c, 1}, brief() + silence() / 4) == 0) {
        const auto start = clock::now();
        EXPECT_EQ(client.cancel(id), status::ok);
        expect_end(client, status::timed_out, start, bound());
    } else {
        EXPECT_EQ(c.status, status::timed_out);
        EXPECT_EQ(client.cancel(id), status::invalid_state) << "it has completed";
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    expect_untouched(*memory, held);
}

TEST_P(lending, other_calls_end_with_the_session_or_go_on) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    auto client = r.connect(client_options());
    client.send_seed(100, 7, {.tag = 2});
    (void)lend(client, *memory, brief());
    (void)reaches_its_handler(r, [&] { return held.size() == 2; });
    const auto start = clock::now();
    for (bool back = false; !back && clock::now() - start < until_hung();) {
        completion c;
        if (client.wait({&c, 1}, until_hung()) == 0) continue;
        back = c.tag == 1;
        EXPECT_EQ(c.status, c.tag == 1 ? status::timed_out : status::peer_lost) << to_string(c.status);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_LT(clock::now() - start, brief() + bound());
    const bool goes_on = client->connected();
    expect_untouched(*memory, held);
    const std::size_t left = client.open_calls();
    EXPECT_EQ(client.finish(goes_on ? status::ok : status::peer_lost), left);
}

TEST_P(lending, a_blocking_call_with_lent_memory_returns_in_time) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    auto client = r.connect(client_options());
    const auto start = clock::now();
    const std::vector<std::byte> request(100);
    const auto answer = client->call(request, {.timeout = brief(), .response_into = memory->part(room, room).value()});
    EXPECT_LT(clock::now() - start, brief() + bound());
    EXPECT_EQ(answer.code(), status::timed_out);
    expect_untouched(*memory, held);
}

/// Sleepers on the descriptor are woken in time as well.
TEST_P(lending, the_event_descriptor_wakes_at_the_end_of_a_call) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    channel_options options = client_options();
    options.poll = poll_mode::block;
    auto client = r.connect(options);
    const auto start = clock::now();
    (void)lend(client, *memory, brief());
    completion c;
    while (client.poll({&c, 1}) == 0 && clock::now() - start < until_hung()) {
        pollfd ready{client->event_fd(), POLLIN, 0};
        if (client->arm()) (void)::poll(&ready, 1, 10'000);
    }
    EXPECT_LT(clock::now() - start, brief() + bound());
    EXPECT_EQ(c.status, status::timed_out);
    expect_untouched(*memory, held);
}

TEST_P(lending, the_channel_connects_again_after_the_end_of_its_session) {
    held_exchanges held;
    std::atomic<bool> holds{true};
    rig r(GetParam(), [&](exchange one) { holds ? held.keep(std::move(one)) : echo(std::move(one)); });
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    channel_options options = client_options();
    options.reconnect = true;
    options.backoff_min = 20ms;
    options.backoff_max = 100ms;
    auto client = r.connect(options);
    for (std::uint64_t round = 0; round < 2; ++round) {
        holds = true;
        const auto start = clock::now();
        (void)lend(client, *memory, brief());
        ASSERT_TRUE(held.wait_for(1));
        expect_end(client, status::timed_out, start, brief() + bound());
        holds = false;
        ASSERT_TRUE(eventually(patience(10s), [&] {
            completion none;
            EXPECT_EQ(client.wait({&none, 1}, 5ms), 0U);
            return client->connected();
        }));
        for (std::uint64_t i = 0; i < 20; ++i) {
            client.send_seed(1000, i);
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            EXPECT_TRUE(matches(c.response, i));
            EXPECT_EQ(client.release(c.id), status::ok);
        }
        expect_untouched(*memory, held);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(lending, a_late_answer_in_time_keeps_the_session) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto memory = r.ctx().allocate(2 * room);
    ASSERT_TRUE(memory);
    channel_options options = client_options();
    options.peer_timeout = patience(10s);
    auto client = r.connect(options);
    (void)lend(client, *memory, brief());
    exchange late = held.take();
    std::optional<completion> before;
    completion c;
    if (client.wait({&c, 1}, 2 * brief()) == 1) before = c;
    echo(std::move(late));
    if (!before) c = client.next();
    EXPECT_EQ(c.status, status::timed_out);
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_TRUE(client.slot_comes_back());
    EXPECT_TRUE(client->connected());
    client.send_seed(10, 2);
    echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(lending, lent_memory_is_released_though_the_server_process_is_stopped) {
    if (!GetParam().network) GTEST_SKIP() << "a server in this process cannot be stopped alone";
    server_process server(GetParam().listen_uri(), "hold", until_hung());
    context ctx = quiet_context();
    auto memory = ctx.allocate(2 * room);
    ASSERT_TRUE(memory);
    channel_options options = client_options();
    auto connected = channel::connect(ctx, server.uri(), options);
    ASSERT_TRUE(connected) << connected.error().message;
    checked_channel client(std::move(connected).value());
    (void)lend(client, *memory, brief());
    completion c;
    bool ended = false;  // before the request arrived, as on a busy machine
    ASSERT_TRUE(eventually(until_hung(), [&] {
        ended = client.poll({&c, 1}) == 1;
        return ended || server.requests() == 1;
    }));
    const auto start = clock::now();
    server.signal(SIGSTOP);
    if (!ended) c = client.next();
    EXPECT_LT(clock::now() - start, brief() + bound());
    EXPECT_TRUE(c.status == status::timed_out || c.status == status::peer_lost) << to_string(c.status);
    EXPECT_EQ(client.release(c.id), status::ok);
    fill(memory->whole().bytes(), 9);
    server.signal(SIGCONT);
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(matches(memory->whole().bytes(), 9));
}

ACCEL_INSTANTIATE(lending, all_backends);

}  // namespace
}  // namespace accel::tests
