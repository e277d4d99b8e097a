// SPDX-License-Identifier: Apache-2.0
// Closing a channel in every state of its calls.
#include "rig.hpp"

#include <optional>

namespace accel::tests {
namespace {

class closing : public on_every_backend {};

TEST_P(closing, close_ends_calls_in_flight) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    auto memory = r.ctx().allocate(8192);
    ASSERT_TRUE(memory);
    for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(100, i);
    call_view lent;
    ASSERT_EQ(client.begin(lent), status::ok);
    ASSERT_EQ(
        client.submit(lent.id, memory->part(0, 4096).value(), {.response_into = memory->part(4096, 4096).value()}),
        status::ok);
    call_view begun;
    ASSERT_EQ(client.begin(begun), status::ok);
    ASSERT_TRUE(held.wait_for(4));
    const auto start = std::chrono::steady_clock::now();
    client->close();
    EXPECT_LT(std::chrono::steady_clock::now() - start, until_hung());
    EXPECT_EQ(client.finish(status::closed), 4U);
    EXPECT_EQ(client->submit(begun.id, 1), status::closed);
    EXPECT_EQ(client.release(begun.id), status::ok);
    call_view call;
    EXPECT_EQ(client.begin(call), status::closed);
    EXPECT_FALSE(client->connected());
    completion none;
    EXPECT_EQ(client.wait({&none, 1}, patience(5s)), 0U);
    client->close();
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 0; }));
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U) << "a close is not a loss";
    for (int i = 0; i < 4; ++i) EXPECT_EQ(held.take().reply(1), status::peer_lost);
}

TEST_P(closing, completions_that_were_due_can_still_be_taken) {
    rig r(GetParam());
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 8; ++i) client.send_seed(1000, i);
    ASSERT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().replies == 8; }));
    client->close();
    std::size_t total = 0;
    for (; total < 8; ++total) {
        const completion c = client.next();
        EXPECT_TRUE(c.status == status::ok || c.status == status::closed) << to_string(c.status);
        if (c.status == status::ok) {
            EXPECT_TRUE(matches(c.response, c.trace_id));
        }
        EXPECT_EQ(client.release(c.id), status::ok);
    }
}

TEST_P(closing, a_busy_channel_may_be_destroyed) {
    rig r(GetParam());
    for (int round = 0; round < 20; ++round) {
        auto client = r.connect();
        for (std::uint64_t i = 0; i < client->slots(); ++i) client.send_seed(60'000, i);
        if (round % 2 == 0) std::this_thread::sleep_for(200us);
        client.forget();
    }
    auto client = r.connect();
    client.send_seed(10, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 1; }));
}

TEST_P(closing, requests_stay_readable_when_their_channel_is_destroyed) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    {
        auto client = r.connect();
        client.send_seed(5000, 17);
        ASSERT_TRUE(held.wait_for(1));
        client.forget();
    }
    ASSERT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 0; }));
    exchange orphan = held.take();
    EXPECT_TRUE(matches(orphan.request(), 17)) << "a held request stays readable";
    fill(orphan.response(), 1);
    EXPECT_EQ(orphan.reply(10), status::peer_lost);
}

TEST_P(closing, moving_a_channel_keeps_its_calls) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto first = r.try_connect();
    ASSERT_TRUE(first);
    call_view call;
    ASSERT_EQ(first->begin(call), status::ok);
    ASSERT_EQ(first->submit(call.id, 5), status::ok);
    channel second = std::move(*first);
    auto third = r.try_connect();
    ASSERT_TRUE(third);
    *third = std::move(second);
    (void)held.take().reply(3);
    completion c;
    ASSERT_EQ(third->wait({&c, 1}, patience(5s)), 1U);
    EXPECT_EQ(c.id, call.id);
    EXPECT_EQ(c.status, status::ok);
    EXPECT_EQ(c.response.size(), 3U);
    EXPECT_EQ(third->release(c.id), status::ok);
    EXPECT_TRUE(eventually(patience(5s), [&] { return r.served().statistics().sessions == 1; }));
}

TEST_P(closing, a_channel_outlives_its_context_object) {
    std::optional<context> ctx(quiet_context());
    auto listening = server::listen(*ctx, {GetParam().listen_uri()}, echo, calm_server());
    ASSERT_TRUE(listening) << listening.error().message;
    auto connected = channel::connect(*ctx, listening->endpoints().at(0), calm_client());
    ASSERT_TRUE(connected) << connected.error().message;
    ctx.reset();
    const auto answer = connected->call({});
    EXPECT_TRUE(answer);
}

ACCEL_INSTANTIATE(closing, all_backends);

}  // namespace
}  // namespace accel::tests
