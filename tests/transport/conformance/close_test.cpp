// SPDX-License-Identifier: Apache-2.0
// Channels that move, and outlive what made them. (random_test.cpp closes them in every state of their calls.)
#include "rig.hpp"

#include <memory>
#include <optional>
#include <utility>

namespace accel::tests {
namespace {

class closing : public on_every_backend {};

TEST_P(closing, moving_a_channel_keeps_its_calls) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto first = r.try_connect();
    ASSERT_TRUE(first);
    const auto call = first->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(first->submit(call->id, 5), status::ok);
    channel second = std::move(*first);
    auto third = r.try_connect();
    ASSERT_TRUE(third);
    *third = std::move(second);
    (void)held.take().reply(3);
    completion c;
    ASSERT_EQ(third->wait({&c, 1}, patience(5s)), 1U);
    EXPECT_EQ(c.id, call->id);
    EXPECT_EQ(c.status, status::ok);
    EXPECT_EQ(c.response.size(), 3U);
    c.release();
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

TEST_P(closing, handler_that_ends_with_its_server_may_ask_it) {
    context ctx = quiet_context();
    std::optional<server> listening;
    int asked = 0;
    const auto ask = [&](void*) {
        if (listening) (void)listening->statistics();
        ++asked;
    };
    auto made = server::listen(
        ctx, {GetParam().listen_uri()},
        [ends = std::shared_ptr<void>(nullptr, ask)](exchange request) { echo(std::move(request)); }, calm_server());
    ASSERT_TRUE(made) << made.error().message;
    listening.emplace(std::move(*made));
    listening->stop();
    EXPECT_EQ(asked, 1);
}

ACCEL_INSTANTIATE(closing, all_backends);

}  // namespace
}  // namespace accel::tests
