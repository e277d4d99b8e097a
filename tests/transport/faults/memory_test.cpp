// SPDX-License-Identifier: Apache-2.0
// Each allocation of a call fails once: a typed error, and nothing is lost.
#include "conformance/rig.hpp"
#include "faults/no_memory.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

namespace accel::faults {
namespace {

using namespace tests;

class no_memory : public on_every_backend {
  protected:
    void SetUp() override {
        if (GetParam().scheme == "zmq") GTEST_SKIP() << "ZeroMQ itself ends the process where it has no memory";
    }
    /// Tries until none of its allocations fails any more. `attempt` returns what the library has said.
    template <class Attempt>
    static void expect_errors(const Attempt& attempt) {
        constexpr std::size_t most = 5'000;
        std::size_t number = 0;
        for (bool failed = true; failed && number < most; ++number) {
            fail_allocation(number);
            const status said = attempt();
            failed = stop_failing();
            const bool fits = said == status::ok || said == status::out_of_memory;
            EXPECT_TRUE(fits) << to_string(said) << " for allocation " << number;
            if (!failed) {
                EXPECT_EQ(said, status::ok);
            }
        }
        EXPECT_LT(number, most);
        std::printf("%zu allocations\n", number - 1);
    }
};

TEST_P(no_memory, opening_a_context_reports_out_of_memory) {
    expect_errors([] {
        const auto made = context::open({.log = log_level::off});
        return made.code();
    });
}

TEST_P(no_memory, registering_memory_reports_out_of_memory) {
    context ctx = quiet_context();
    expect_errors([&] {
        const auto made = ctx.allocate(10'000);
        return made.code();
    });
    std::vector<std::byte> own(10'000);
    expect_errors([&] {
        const auto made = ctx.register_memory(own.data(), own.size());
        return made.code();
    });
}

TEST_P(no_memory, listening_reports_out_of_memory) {
    std::string uri = GetParam().listen_uri();
    if (GetParam().scheme == std::string_view{"local"}) uri += "-of-a-length-that-takes-memory";
    context ctx = quiet_context();
    const handler service = echo;
    expect_errors([&] {
        const auto made = server::listen(ctx, {uri}, service, calm_server());
        return made.code();
    });
}

TEST_P(no_memory, connecting_reports_out_of_memory) {
    rig r(GetParam());
    auto other = r.connect();
    context ctx = quiet_context();
    expect_errors([&] {
        const auto made = channel::connect(ctx, r.uri(), calm_client());
        return made.code();
    });
    other.send_seed(100, 1);
    EXPECT_EQ(other.finish(status::ok), 1U);
    EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 1; }));
}

TEST_P(no_memory, calling_reports_out_of_memory) {
    rig r(GetParam());
    auto client = r.connect();
    expect_errors([&] {
        const std::array<std::byte, 100> request{};
        const auto made = client->call(request);
        return made.code();
    });
}

/// One session may end. Nobody else notices. Each time with a new server, whose threads have no memory to spare: lists
/// grow at the second session and at the fifth.
TEST_P(no_memory, a_failed_allocation_of_another_thread_ends_at_most_one_session) {
    server_options serving = calm_server();
    serving.workers = 1;
    channel_options patient = calm_client();
    serving.peer_timeout = patient.peer_timeout = std::chrono::hours{1};  // no heartbeats of the others
    constexpr std::size_t attempts = 240;
    std::size_t failures = 0;
    for (std::size_t number = 0; number < attempts; ++number) {
        rig r(GetParam(), echo, serving);
        std::vector<checked_channel> others;
        while (others.size() < (number % 2 == 0 ? 1U : 4U)) others.push_back(r.connect(patient));
        const auto others_work = [&] {
            return std::ranges::all_of(others, [](checked_channel& each) {
                each.send_seed(100, 1);
                return each.finish(status::ok) == 1;
            });
        };
        ASSERT_TRUE(others_work());
        context ctx = quiet_context();
        const auto try_call = [&](std::chrono::nanoseconds timeout) {
            channel_options options = calm_client();
            options.connect_timeout = timeout;
            auto made = channel::connect(ctx, r.uri(), options);
            return made ? made->call(std::array<std::byte, 100>{}).code() : made.code();
        };
        fail_allocation_elsewhere(number / 2);
        const status said = try_call(100ms);  // a lost message is answered no sooner
        failures += stop_failing() ? 1U : 0U;
        // unauthorized: its session had ended when its connection came; overloaded: the server closed its connections
        const std::array fitting{status::ok,        status::out_of_memory, status::peer_lost,    status::closed,
                                 status::timed_out, status::system_error,  status::unauthorized, status::overloaded};
        const bool fits = std::ranges::find(fitting, said) != fitting.end();
        EXPECT_TRUE(fits) << to_string(said) << " for allocation " << number / 2;
        EXPECT_TRUE(others_work()) << "for allocation " << number / 2;
        ASSERT_EQ(try_call(until_hung()), status::ok) << "after allocation " << number / 2;
        EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == others.size(); }));
    }
    EXPECT_GT(failures, 0U);
    std::printf("%zu allocations\n", failures);
}

/// The client's message may be lost with its session, which stops the exchange as well.
TEST_P(no_memory, a_cancel_stops_its_exchange_though_allocations_fail) {
    constexpr std::size_t attempts = 60;
    std::size_t failures = 0;
    for (std::size_t number = 0; number < attempts; ++number) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        channel_options patient = calm_client();
        patient.call_timeout = std::chrono::hours{1};
        auto client = r.connect(patient);
        const call_id call = client.send_seed(100, number);
        const exchange open = held.take();
        const std::stop_token stop = open.stop_token();
        fail_allocation_elsewhere(number);
        ASSERT_EQ(client.cancel(call), status::ok);
        EXPECT_TRUE(eventually(until_hung(), [&] { return stop.stop_requested(); })) << "for allocation " << number;
        failures += stop_failing() ? 1U : 0U;
        const completion told = client.next();
        EXPECT_TRUE(told.status == status::cancelled || told.status == status::peer_lost) << to_string(told.status);
    }
    std::printf("%zu allocations\n", failures);
}

TEST_P(no_memory, a_channel_goes_on_reconnecting_though_allocations_fail) {
    context ctx = quiet_context();
    auto served = server::listen(ctx, {std::string_view(GetParam().listen_uri())}, echo, calm_server());
    ASSERT_TRUE(served) << served.error().message;
    const std::string uri = served->endpoints().at(0);
    channel_options options = calm_client();
    options.reconnect = true;
    options.backoff_min = options.backoff_max = 1ms;
    options.connect_timeout = 100ms;  // a lost message is answered no sooner
    constexpr std::size_t attempts = 40;
    std::size_t failures = 0;
    for (std::size_t number = 0; number < attempts; ++number) {
        auto client = channel::connect(ctx, uri, options);
        const auto is_there = [&] {
            if (!client) client = channel::connect(ctx, uri, options);
            return client.ok();
        };
        ASSERT_TRUE(eventually(until_hung(), is_there)) << client.error().message;
        served->stop();
        served = server::listen(ctx, {uri}, echo, calm_server());
        ASSERT_TRUE(served) << served.error().message;
        fail_allocation_elsewhere(number);
        const auto works = [&] { return client->call(std::array<std::byte, 100>{}).code() == status::ok; };
        EXPECT_TRUE(eventually(until_hung(), works)) << "after allocation " << number;
        failures += stop_failing() ? 1U : 0U;
    }
    EXPECT_GT(failures, 0U);
    std::printf("%zu allocations\n", failures);
}

ACCEL_INSTANTIATE(no_memory, all_backends);

}  // namespace
}  // namespace accel::faults
