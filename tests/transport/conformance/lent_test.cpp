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
  public:
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
        const auto call = client.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(client.submit(
                      call->id, payload,
                      {.timeout = timeout, .tag = 1, .trace_id = 5, .response_into = memory.part(room, room).value()}),
                  status::ok);
        return call->id;
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
}

enum class ending { by_deadline, by_cancel, by_cancel_after_deadline, while_asleep, in_a_blocking_call };

/// The completion of a call whose deadline is over, which may have to wait for its memory. A cancel changes nothing.
void expect_cancel_in_vain(checked_channel& client, call_id id, nanoseconds settling, nanoseconds bound) {
    completion c;
    if (client.wait({&c, 1}, settling) == 0) {
        const auto start = clock::now();
        EXPECT_EQ(client.cancel(id), status::ok);
        return expect_end(client, status::timed_out, start, bound);
    }
    EXPECT_EQ(c.status, status::timed_out);
    EXPECT_EQ(client.cancel(id), status::invalid_state) << "it has completed";
}

/// Sleeps as an application's own loop does, until there is a completion, which it leaves there.
void sleep_on_descriptor(channel& client, nanoseconds bound) {
    const auto until = clock::now() + bound;
    while (client.arm() && clock::now() < until) {
        pollfd ready{client.event_fd(), POLLIN, 0};
        (void)::poll(&ready, 1, static_cast<int>(bound / 1ms));
        (void)client.poll({});
    }
}

void expect_end_in_time(rig& r, held_exchanges& held, ending how, region& memory, checked_channel& client) {
    const nanoseconds brief = lending::brief();
    const auto start = clock::now();
    if (how == ending::in_a_blocking_call) {
        const std::vector<std::byte> request(100);
        const slice into = memory.part(lending::room, lending::room).value();
        EXPECT_EQ(client->call(request, {.timeout = brief, .response_into = into}).code(), status::timed_out);
        EXPECT_LT(clock::now() - start, brief + lending::bound());
        return;
    }
    const call_id id = lending::lend(client, memory, how == ending::by_cancel ? patience(60s) : brief);
    (void)reaches_its_handler(r, held);
    if (how == ending::by_cancel_after_deadline)
        return expect_cancel_in_vain(client, id, brief + lending::silence() / 4, lending::bound());
    if (how == ending::while_asleep) sleep_on_descriptor(client.raw(), until_hung());
    if (how != ending::by_cancel) return expect_end(client, status::timed_out, start, brief + lending::bound());
    const auto cancelled = clock::now();
    EXPECT_EQ(client.cancel(id), status::ok);
    expect_end(client, status::cancelled, cancelled, lending::bound());
}

TEST_P(lending, capabilities_say_whether_a_call_waits_for_its_late_answer) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = client_options();
    options.peer_timeout = until_hung();
    auto client = r.connect(options);
    auto memory = r.ctx().allocate(room);
    ASSERT_TRUE(memory.ok());
    const call_id call = client.send_seed(10, 1, {.timeout = until_hung(), .response_into = memory->whole()});
    exchange open = held.take();
    EXPECT_EQ(client.cancel(call), status::ok);
    const bool waits = client->capabilities().server_writes_lent_memory;
    if (waits) {
        completion none;
        EXPECT_EQ(client.wait({&none, 1}, 200ms), 0U);
        EXPECT_EQ(open.reply(0), status::ok);
    }
    EXPECT_EQ(client.next().status, status::cancelled);
    if (!waits) {
        EXPECT_EQ(open.reply(0), status::ok);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(lending, a_call_ends_in_time_though_no_answer_comes) {
    for (const ending how : {ending::by_deadline, ending::by_cancel, ending::by_cancel_after_deadline,
                             ending::while_asleep, ending::in_a_blocking_call}) {
        SCOPED_TRACE(static_cast<int>(how));
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto memory = r.ctx().allocate(2 * room);
        ASSERT_TRUE(memory);
        channel_options options = client_options();
        if (how == ending::while_asleep) options.poll = poll_mode::block;
        auto client = r.connect(options);
        expect_end_in_time(r, held, how, *memory, client);
        expect_untouched(*memory, held);
    }
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
    }
    EXPECT_LT(clock::now() - start, brief() + bound());
    const bool goes_on = client->connected();
    expect_untouched(*memory, held);
    const std::size_t left = client.open_calls();
    EXPECT_EQ(client.finish(goes_on ? status::ok : status::peer_lost), left);
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
    completion c;
    const bool before = client.wait({&c, 1}, 2 * brief()) == 1;
    echo(std::move(late));
    if (!before) c = client.next();
    EXPECT_EQ(c.status, status::timed_out);
    c.release();
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
    c.release();
    fill(memory->whole().bytes(), 9);
    server.signal(SIGCONT);
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(matches(memory->whole().bytes(), 9));
}

ACCEL_INSTANTIATE(lending, all_backends);

}  // namespace
}  // namespace accel::tests
