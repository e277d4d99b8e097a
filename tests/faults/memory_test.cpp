// SPDX-License-Identifier: Apache-2.0
// Each allocation of a call fails once: a typed error, and nothing is lost.
#include "conformance/rig.hpp"
#include "faults/no_memory.hpp"

#include <functional>
#include <string>

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

TEST_P(no_memory, for_a_context) {
    expect_errors([] {
        const auto made = context::open({.log = log_level::off});
        return made.code();
    });
}

TEST_P(no_memory, for_memory_of_ones_own) {
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

TEST_P(no_memory, to_listen) {
    std::string uri = GetParam().listen_uri();
    if (GetParam().scheme == std::string_view{"local"}) uri += "-of-a-length-that-takes-memory";
    context ctx = quiet_context();
    expect_errors([&] {
        const auto made = server::listen(ctx, {uri}, echo, calm_server());
        return made.code();
    });
}

TEST_P(no_memory, to_connect) {
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

TEST_P(no_memory, to_call) {
    rig r(GetParam());
    auto client = r.connect();
    expect_errors([&] {
        const std::array<std::byte, 100> request{};
        const auto made = client->call(request);
        return made.code();
    });
}

/// One session may end. Nobody else notices.
TEST_P(no_memory, on_other_threads_costs_one_session_at_most) {
    server_options serving = calm_server();
    channel_options patient = calm_client();
    serving.peer_timeout = patient.peer_timeout = std::chrono::hours{1};  // no heartbeats of the other client
    rig r(GetParam(), echo, serving);
    auto other = r.connect(patient);
    context ctx = quiet_context();
    const std::array<std::byte, 100> request{};
    const auto try_call = [&](std::chrono::nanoseconds timeout) {
        channel_options options = calm_client();
        options.connect_timeout = timeout;
        auto made = channel::connect(ctx, r.uri(), options);
        return made ? made->call(request).code() : made.code();
    };
    ASSERT_EQ(try_call(until_hung()), status::ok);
    constexpr std::size_t attempts = 200;
    std::size_t failures = 0;
    for (std::size_t number = 0; number < attempts; ++number) {
        fail_allocation_elsewhere(number);
        const status said = try_call(100ms);  // a lost message is answered no sooner
        failures += stop_failing() ? 1U : 0U;
        const bool fits = said == status::ok || said == status::out_of_memory || said == status::peer_lost ||
                          said == status::closed || said == status::timed_out || said == status::system_error;
        EXPECT_TRUE(fits) << to_string(said) << " for allocation " << number;
        other.send_seed(100, number);
        EXPECT_EQ(other.finish(status::ok), 1U) << "for allocation " << number;
        ASSERT_EQ(try_call(until_hung()), status::ok) << "after allocation " << number;
    }
    EXPECT_GT(failures, 0U);
    EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 1; }));
    std::printf("%zu allocations\n", failures);
}

ACCEL_INSTANTIATE(no_memory, all_backends);

}  // namespace
}  // namespace accel::faults
