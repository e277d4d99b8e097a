// SPDX-License-Identifier: Apache-2.0
// No thread can be started: typed errors, and whoever has his threads goes on.
#include "conformance/rig.hpp"
#include "faults/few_threads.hpp"

#include <atomic>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace accel::faults {
namespace {

using namespace tests;

/// More than a server and a client start together.
constexpr std::size_t enough_threads = 24;

class few_threads : public on_every_backend {
  protected:
    /// An emulated device starts its own threads, without which it is slow, on the first use.
    few_threads() {
        rig first(GetParam());
        (void)first.connect();
    }
    ~few_threads() override { allow_all_threads(); }

    /// True: it worked. An error says what to raise.
    template <class Result>
    static bool works(const Result& outcome) {
        if (outcome) return true;
        EXPECT_EQ(outcome.code(), status::system_error) << outcome.error().message;
        EXPECT_NE(outcome.error().message.find("ulimit -u"), std::string::npos) << outcome.error().message;
        return false;
    }
    /// Listens, connects and calls with so many threads at most. True: that worked.
    static bool try_with(std::size_t count) {
        std::optional<result<context>> ctx;
        std::optional<result<server>> listening;
        std::optional<result<channel>> client;
        allow_more_threads(count);
        const auto called = [&] {
            if (!works(ctx.emplace(context::open({.log = log_level::off})))) return false;
            const std::string uri = GetParam().listen_uri();
            if (!works(listening.emplace(server::listen(**ctx, {uri}, echo, calm_server())))) return false;
            channel_options options = calm_client();
            options.reconnect = true;
            const std::string where = (*listening)->endpoints().at(0);
            if (!works(client.emplace(channel::connect(**ctx, where, options)))) return false;
            const std::array<std::byte, 100> request{};
            const auto answer = (*client)->call(request);
            EXPECT_TRUE(answer.ok());
            return answer.ok();
        }();
        allow_all_threads();  // an emulated device needs some to end
        return called;
    }
};

TEST_P(few_threads, listening_and_connecting_report_missing_threads) {
    std::size_t served = 0;
    for (std::size_t count = 0; count <= enough_threads; ++count) served += try_with(count) ? 1U : 0U;
    EXPECT_GT(served, 0U);
    EXPECT_LT(served, enough_threads + 1) << "none was ever refused";
}

TEST_P(few_threads, missing_threads_do_not_disturb_other_channels) {
    rig r(GetParam());
    auto client = r.connect();
    client.send_seed(100, 1);
    ASSERT_EQ(client.finish(status::ok), 1U);
    allow_more_threads(0);
    context ctx = quiet_context();
    channel_options options = calm_client();
    options.reconnect = true;
    const bool in_process = !GetParam().network && GetParam().scheme == "local";
    EXPECT_FALSE(works(channel::connect(ctx, r.uri(), options)));
    EXPECT_GT(refused_threads(), 0U);
    if (in_process) {
        options.reconnect = false;
        EXPECT_TRUE(works(channel::connect(ctx, r.uri(), options)));
    }
    client.send_seed(100, 2);
    EXPECT_EQ(client.finish(status::ok), 1U);
    allow_all_threads();
    EXPECT_TRUE(r.try_connect().ok());
    EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 1; }))
        << "sessions whose channel could not be made stay";
}

TEST_P(few_threads, a_stop_token_without_a_thread_never_stops) {
    std::atomic<int> without{0};
    rig r(GetParam(), [&](exchange one) {
        const std::stop_token token = one.stop_token();
        without += token.stop_requested() ? 0 : 1;
        echo(std::move(one));
    });
    auto client = r.connect();
    allow_more_threads(0);
    for (std::uint64_t i = 0; i < 3; ++i) {
        client.send_seed(100, i);
        EXPECT_EQ(client.finish(status::ok), 1U);
    }
    EXPECT_EQ(without, 3);
    EXPECT_GT(refused_threads(), 0U);
    allow_all_threads();
}

TEST_P(few_threads, a_channel_reconnects_without_new_threads) {
    if (!GetParam().network) GTEST_SKIP() << "one URI names one server";
    std::optional<rig> first(std::in_place, GetParam());
    rig second(GetParam());
    channel_options options = calm_client();
    options.reconnect = true;
    const std::string both = first->uri() + "," + second.uri().substr(second.uri().find("//") + 2);
    auto client = channel::connect(first->ctx(), both, options);
    ASSERT_TRUE(client) << client.error().message;
    ASSERT_TRUE(client->call({}).ok());
    allow_more_threads(0);
    first->destroy_server();
    EXPECT_TRUE(
        eventually(until_hung(), [&] { return client->call({}).ok() && second.served().statistics().sessions == 1; }));
    EXPECT_EQ(refused_threads(), 0U);
}

TEST_P(few_threads, pool_at_a_name_calls_without_a_thread_of_its_own) {
    if (!GetParam().network || GetParam().scheme == "shm") GTEST_SKIP() << "names are for hosts";
    rig r(GetParam());
    auto client = r.connect();
    client.send_seed(100, 1);
    ASSERT_EQ(client.finish(status::ok), 1U);
    auto pool = channel_pool::open(r.ctx(), "dns+" + r.uri(), calm_client());
    ASSERT_TRUE(pool) << pool.error().message;
    allow_more_threads(0);
    const auto answer = pool->call({});
    EXPECT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(refused_threads(), 1U);
    allow_all_threads();
}

TEST_P(few_threads, a_handler_that_cannot_stop_its_server_still_answers) {
    server* own = nullptr;
    rig r(GetParam(), [&](exchange one) {
        allow_more_threads(0);
        own->stop();
        allow_all_threads();
        echo(std::move(one));
    });
    own = &r.served();
    auto client = r.connect();
    client.send_seed(100, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    client.send_seed(100, 2);
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(few_threads, a_driven_server_goes_on_when_its_handler_cannot_stop_it) {
    server_options options = calm_server();
    options.workers = 0;
    server* own = nullptr;
    int tries = 0;
    rig r(
        GetParam(),
        [&](exchange one) {
            if (++tries == 1) allow_more_threads(0);
            own->stop();
            allow_all_threads();
            echo(std::move(one));
        },
        options);
    own = &r.served();
    std::atomic<bool> over{false};
    std::thread driver([&] {
        while (!over) r.served().poll();
    });
    {
        auto client = r.connect();
        client.send_seed(100, 1);
        EXPECT_EQ(client.finish(status::ok), 1U);
        client.send_seed(100, 2);
        EXPECT_EQ(client.finish(status::ok), 1U) << "nobody drives the server";
        EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 0; }))
            << "it did not stop";
    }
    over = true;
    driver.join();
}

ACCEL_INSTANTIATE(few_threads, all_backends);

}  // namespace
}  // namespace accel::faults
