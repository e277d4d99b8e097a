// SPDX-License-Identifier: Apache-2.0
// Clients that are killed or stopped at any moment: the others lose nothing.
#include "conformance/checked_channel.hpp"
#include "conformance/payload.hpp"
#include "hostile/arena.hpp"

#include <csignal>
#include <cstdlib>
#include <random>

#include <fmt/format.h>

namespace accel::hostile {
namespace {

using tests::eventually;

/// Rounds for each signal; ACCEL_HOSTILE_ROUNDS asks for more.
int rounds() {
    const char* text = std::getenv("ACCEL_HOSTILE_ROUNDS");
    return text != nullptr ? std::max(1, std::atoi(text)) : tests::effort(10);
}

struct deaths : ::testing::TestWithParam<std::string> {
    static std::chrono::nanoseconds silence() { return patience(200ms); }
    [[nodiscard]] static std::string peer_timeout() {
        return fmt::format("peer_timeout={}ms", silence() / std::chrono::milliseconds{1});
    }
    [[nodiscard]] std::string uri() const { return server.uri() + "?insecure=true&" + peer_timeout(); }

    /// Survivors call all the time, and look at each byte.
    void survive(tests::checked_channel& survivor, std::chrono::nanoseconds time) {
        const auto until = core::deadline_after(time);
        while (core::now() < until || survivor.open_calls() > 0) {
            if (core::now() < until) {
                if (const auto call = survivor.begin()) {
                    tests::fill(call->request.first(3000), ++seed);
                    ASSERT_EQ(survivor.submit(call->id, 3000, {.trace_id = seed}), status::ok);
                }
            }
            completion done;
            if (survivor.poll({&done, 1}) == 0) continue;
            ASSERT_EQ(done.status, status::ok) << to_string(done.status);
            ASSERT_TRUE(tests::matches(done.response, done.trace_id));
            done.release();
            ++calls;
        }
    }

    victim server{fmt::format("{}?insecure=true&{}", listen_uri(GetParam()), peer_timeout()), {}, -1};
    std::uint64_t seed = 0;
    std::uint64_t calls = 0;
};

TEST_P(deaths, killed_and_stopped_clients_do_not_disturb_others) {
    context ctx = *context::open({.log = log_level::off});
    channel_options options;
    options.slots = 8;
    options.request_bytes = options.response_bytes = 4096;
    options.peer_timeout = patience(2s);
    options.call_timeout = patience(20s);
    auto connected = channel::connect(ctx, server.uri() + "?insecure=true", options);
    ASSERT_TRUE(connected) << connected.error().message;
    tests::checked_channel survivor(std::move(connected).value());
    survive(survivor, 20ms);
    const std::size_t descriptors = server.descriptors();
    std::minstd_rand random{17};
    std::uint64_t lost = 0;
    for (int round = 0; round < rounds(); ++round) {
        for (const int how : {SIGKILL, SIGSTOP}) {
            tests::peer_process dying({"client", uri(), "4", round % 2 == 0 ? "300" : "300000", "stream"});
            ASSERT_EQ(dying.line(), "in_flight");
            survive(survivor, std::chrono::microseconds{random() % 20'000});
            dying.signal(how);
            survive(survivor, 10ms);
            ASSERT_TRUE(eventually(tests::until_hung(), [&] { return server.counts().sessions == 1; }));
            // It finds its session gone, whatever it tries.
            dying.signal(SIGCONT);
            survive(survivor, 5ms);
            dying.kill();
            ++lost;
        }
    }
    EXPECT_TRUE(survivor->connected());
    EXPECT_TRUE(survivor.all_slots_free());
    const auto counts = server.counts();
    EXPECT_EQ(counts.sessions, 1U);
    EXPECT_EQ(counts.lost, lost);
    EXPECT_GE(counts.requests, calls);
    EXPECT_TRUE(eventually(patience(5s), [&] { return server.descriptors() <= descriptors; }))
        << server.descriptors() << ", before " << descriptors;
    EXPECT_TRUE(eventually(patience(5s), [&] { return server.counts().memory_bytes < 1U << 20; }));
    fmt::print("{}: {} clients died, {} calls of the survivor\n", GetParam(), lost, calls);
}

INSTANTIATE_TEST_SUITE_P(hostile, deaths, ::testing::Values("tcp", "shm", "zmq", "rdma"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace accel::hostile
