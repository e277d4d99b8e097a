// SPDX-License-Identifier: Apache-2.0
// A peer that dies or goes silent: the survivor hears of it within the bound, loses nothing else, and serves
// on.
#include "peer_process.hpp"
#include "rig.hpp"

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class death : public on_every_backend {
  protected:
    /// The `peer_timeout` where a peer goes silent.
    static nanoseconds silence() { return patience(1s); }
    /// The `peer_timeout` where a peer is killed, which its connections tell sooner. A peer that a busy machine holds
    /// up is not lost.
    static nanoseconds calm() { return patience(5s); }
    /// The promised bound, and room for a loaded machine to schedule us.
    static nanoseconds bound() { return calm() + patience(10s); }
    static channel_options client_options(nanoseconds peer_timeout = calm()) {
        channel_options options = calm_client();
        options.peer_timeout = peer_timeout;
        options.call_timeout = patience(60s);
        return options;
    }
};

struct connected_client {
    context ctx = quiet_context();
    checked_channel client;
    connected_client(const std::string& uri, const channel_options& options) : client(open(ctx, uri, options)) {}
    static channel open(context& ctx, const std::string& uri, const channel_options& options) {
        auto connected = channel::connect(ctx, uri, options);
        if (!connected) throw std::runtime_error("connect: " + connected.error().message);
        return std::move(connected).value();
    }
};

void expect_dead(checked_channel& client) {
    EXPECT_FALSE(client->connected());
    const auto call = client.begin();
    EXPECT_EQ(call.code(), status::peer_lost);
    completion none;
    EXPECT_EQ(client.wait({&none, 1}, patience(1s)), 0U);
}

/// In flight, lent, begun, in parts; and whoever has none hears of it too.
TEST_P(death, a_killed_server_ends_each_call_once) {
    server_process server(GetParam().listen_uri(), "hold", calm());
    connected_client c(server.uri(), client_options());
    connected_client streaming(server.uri(), client_options());
    connected_client idle(server.uri(), client_options());
    auto memory = c.ctx.allocate(64 << 10);
    ASSERT_TRUE(memory);
    for (std::uint64_t i = 0; i < 6; ++i) c.client.send_seed(1000 * i, i);
    const auto lent = c.client.begin();
    ASSERT_EQ(lent.code(), status::ok);
    ASSERT_EQ(c.client.submit(lent->id, memory->whole(), {.response_into = memory->whole()}), status::ok);
    const auto begun = c.client.begin();
    ASSERT_EQ(begun.code(), status::ok);
    std::vector<completion> unread;
    for (std::uint64_t i = 0; i < 3; ++i) streaming.client.send_seed(100, i, {.parts = 1});
    for (int i = 0; i < 3; ++i) unread.push_back(streaming.client.next());
    unread.pop_back();  // the server has room for one
    ASSERT_TRUE(eventually(patience(5s), [&] { return server.requests() == 10; }));
    const auto start = std::chrono::steady_clock::now();
    server.kill();
    EXPECT_EQ(c.client.finish(status::peer_lost, bound()), 7U);
    EXPECT_EQ(streaming.client.finish(status::peer_lost, bound()), 3U) << "exactly one last completion each";
    completion none;
    EXPECT_EQ(idle.client.wait({&none, 1}, bound() + patience(5s)), 0U);
    EXPECT_LT(std::chrono::steady_clock::now() - start, bound()) << "wait has to return when the channel is lost";
    for (const completion& each : unread) {
        EXPECT_TRUE(each.more);
        EXPECT_EQ(each.response.size(), 16U) << "it is the application's, though its server is gone";
    }
    EXPECT_EQ(c.client->submit(begun->id, 1), status::peer_lost);
    EXPECT_EQ(c.client.release(begun->id), status::ok);
    for (connected_client* each : {&c, &streaming, &idle}) expect_dead(each->client);
}

TEST_P(death, a_killed_server_ends_the_calls_of_all_threads_of_a_shared_channel) {
    server_process server(GetParam().listen_uri(), "hold", calm());
    context ctx = quiet_context();
    channel_options options = client_options();
    options.slots = 3;
    auto shared = shared_channel::connect(ctx, server.uri(), options);
    ASSERT_TRUE(shared) << shared.error().message;
    std::atomic<int> lost{0};
    std::vector<std::thread> all;  // some of them wait for slots
    for (int i = 0; i < 5; ++i)
        all.emplace_back([&] { lost += shared->call(std::span<const std::byte>{}).code() == status::peer_lost; });
    EXPECT_TRUE(eventually(patience(5s), [&] { return server.requests() == 3; }));
    server.kill();
    for (std::thread& each : all) each.join();
    EXPECT_EQ(lost, 5);
    EXPECT_FALSE(shared->connected());
}

TEST_P(death, a_server_killed_in_mid_message_ends_calls) {
    for (int round = 0; round < 4; ++round) {
        server_process server(GetParam().listen_uri(), "echo", calm());
        channel_options options = client_options();
        options.request_bytes = options.response_bytes = 4U << 20;
        connected_client c(server.uri(), options);
        for (std::uint64_t i = 0; i < c.client->slots(); ++i) c.client.send_seed(4U << 20, i);
        std::this_thread::sleep_for(std::chrono::milliseconds{round * 3});
        server.kill();
        const auto start = std::chrono::steady_clock::now();
        while (c.client.open_calls() > 0) {
            const completion done = c.client.next(bound());
            EXPECT_TRUE(done.status == status::peer_lost || done.status == status::ok) << to_string(done.status);
            if (done.status == status::ok) {
                EXPECT_TRUE(matches(done.response, done.trace_id));
            }
        }
        EXPECT_LT(std::chrono::steady_clock::now() - start, bound());
        EXPECT_TRUE(eventually(bound(), [&] {
            completion none;
            EXPECT_EQ(c.client.poll({&none, 1}), 0U);
            return !c.client->connected();
        }));
    }
}

TEST_P(death, a_server_is_lost_when_it_is_silent_and_not_when_it_works) {
    server_process server(GetParam().listen_uri(), "hold", silence());
    connected_client c(server.uri(), client_options(silence()));
    for (std::uint64_t i = 0; i < 3; ++i) c.client.send_seed(100, i);
    ASSERT_TRUE(eventually(patience(5s), [&] { return server.requests() == 3; }));
    completion none;
    EXPECT_EQ(c.client.wait({&none, 1}, 3 * silence()), 0U) << "heartbeats have to keep an idle session alive";
    EXPECT_TRUE(c.client->connected());
    const auto start = std::chrono::steady_clock::now();
    server.signal(SIGSTOP);
    EXPECT_EQ(c.client.finish(status::peer_lost, bound()), 3U);
    EXPECT_LT(std::chrono::steady_clock::now() - start, bound());
    expect_dead(c.client);
}

TEST_P(death, a_killed_client_ends_its_session_while_requests_are_held) {
    held_exchanges held;
    server_options options = calm_server();
    options.peer_timeout = calm();
    rig r(GetParam(), held.keeper(), options);
    peer_process dying(
        {"client", r.uri() + "?peer_timeout=" + std::to_string(calm() / 1ms) + "ms", "5", "3000", "once"});
    ASSERT_EQ(dying.line(), "in_flight");
    ASSERT_TRUE(held.wait_for(5));
    auto survivor = r.connect();
    dying.kill();
    EXPECT_TRUE(eventually(bound(), [&] { return r.served().statistics().sessions == 1; }));
    EXPECT_EQ(r.served().statistics().sessions_lost, 1U);
    for (int i = 0; i < 5; ++i) {
        exchange orphan = held.take();
        EXPECT_EQ(orphan.request().size(), 3000U);
        EXPECT_TRUE(matches(orphan.request(), orphan.trace_id())) << "a held request stays readable";
        EXPECT_EQ(orphan.reply(10), status::peer_lost);
    }
    survivor.send_seed(100, 1);
    echo(held.take());
    EXPECT_EQ(survivor.finish(status::ok), 1U);
}

TEST_P(death, a_client_killed_in_mid_message_ends_only_its_session) {
    server_options options = calm_server();
    options.peer_timeout = calm();
    rig r(GetParam(), echo, options);
    auto survivor = r.connect();
    for (int round = 0; round < 4; ++round) {
        peer_process dying(
            {"client", r.uri() + "?peer_timeout=" + std::to_string(calm() / 1ms) + "ms", "4", "4000000", "stream"});
        ASSERT_EQ(dying.line(), "in_flight");
        for (std::uint64_t i = 0; i < 20; ++i) {
            survivor.send_seed(5000, i);
            EXPECT_EQ(survivor.finish(status::ok), 1U);
        }
        dying.kill();
        for (std::uint64_t i = 0; i < 20; ++i) {
            survivor.send_seed(5000, i);
            EXPECT_EQ(survivor.finish(status::ok), 1U);
        }
        EXPECT_TRUE(eventually(bound(), [&] { return r.served().statistics().sessions == 1; }));
    }
    EXPECT_EQ(r.served().statistics().sessions_lost, 4U);
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().memory_bytes < 3U << 20; }))
        << "the slots of the dead are given back";
}

TEST_P(death, a_silent_client_loses_its_session) {
    held_exchanges held;
    server_options options = calm_server();
    options.peer_timeout = silence();
    rig r(GetParam(), held.keeper(), options);
    peer_process silent(
        {"client", r.uri() + "?peer_timeout=" + std::to_string(silence() / 1ms) + "ms", "2", "100", "once"});
    ASSERT_EQ(silent.line(), "in_flight");
    ASSERT_TRUE(held.wait_for(2));
    silent.signal(SIGSTOP);
    EXPECT_TRUE(eventually(bound(), [&] { return r.served().statistics().sessions == 0; }));
    EXPECT_EQ(held.take().reply(0), status::peer_lost);
}

ACCEL_INSTANTIATE(death, network_backends);

}  // namespace
}  // namespace accel::tests
