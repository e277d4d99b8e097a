// SPDX-License-Identifier: Apache-2.0
// Ends of leases, and answers that nobody may give. (random_test.cpp has all others.)
#include "rig.hpp"

#include <array>
#include <atomic>
#include <optional>

namespace accel::tests {
namespace {

class answers : public on_every_backend {};

TEST_P(answers, leases_of_answers_that_were_read_end_with_their_channel) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const region memory = r.ctx().allocate(64 << 10).value();
    {
        auto client = r.connect();
        for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        for (int i = 0; i < 2; ++i) EXPECT_EQ(client.next().status, status::ok);  // the third is unread
        client.forget();
    }
    EXPECT_TRUE(eventually([&] { return leases == 0; })) << leases << " leases were not given back";
}

TEST_P(answers, leases_of_answers_to_a_stopped_server_end) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    server_options options = calm_server();
    options.drain_timeout = 1ms;
    rig r(GetParam(), held.keeper(), options);
    const region memory = r.ctx().allocate(64 << 10).value();
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
    ASSERT_TRUE(held.wait_for(3));
    r.served().stop();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::peer_lost);
    EXPECT_TRUE(eventually([&] { return leases == 0; })) << leases << " leases were not given back";
    client.forget();
}

/// Over `local` the client reads the lent memory itself: as long as it likes, also while it calls the next server.
TEST_P(answers, lent_answers_outlive_their_server_until_they_are_released) {
    std::atomic<std::uint32_t> leases{0};
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    const region memory = r.ctx().allocate(64 << 10).value();
    fill(memory.whole().bytes(), 42);
    const bool in_place = GetParam().scheme == "local";
    const auto expect_leases = [&](std::uint32_t wanted) {
        EXPECT_TRUE(eventually([&] { return leases == (in_place ? wanted : 0); })) << leases << ", not " << wanted;
    };
    std::optional<server> next;
    channel_options options = calm_client();
    options.reconnect = true;
    options.backoff_min = options.backoff_max = 1ms;
    {
        auto client = r.connect(options);
        for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        std::array<completion, 3> got{client.next()};
        r.destroy_server();
        for (std::size_t i = 1; i < 3; ++i) got[i] = client.next();
        for (const completion& each : got) {
            EXPECT_TRUE(each.status == status::ok || (!in_place && each.status == status::peer_lost));
            EXPECT_TRUE(each.status != status::ok || matches(each.response, 42));
        }
        expect_leases(3);
        got[0].release();
        expect_leases(2);
        next.emplace(server::listen(r.ctx(), {r.uri()}, echo, calm_server()).value());
        EXPECT_TRUE(eventually([&] { return client.poll({}) == 0 && client->connected(); }));
        EXPECT_TRUE(got[1].status != status::ok || matches(got[1].response, 42));
        got[1].release();
        expect_leases(1);
    }
    EXPECT_EQ(leases, 0U);
}

TEST_P(answers, answering_twice_ends_the_process) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            held_exchanges held;
            rig r(GetParam(), held.keeper());
            auto client = r.connect();
            client.send({});
            exchange one = held.take();
            (void)one.reply(0);
            (void)one.reply(0);
        },
        "exchange");
}

ACCEL_INSTANTIATE(answers, all_backends);

}  // namespace
}  // namespace accel::tests
