// SPDX-License-Identifier: Apache-2.0
// The stages of a call: those the handler records come back, and together they never exceed the total.
#include "rig.hpp"

#include <atomic>
#include <thread>

namespace accel::tests {
namespace {

class timelines : public on_every_backend {};

TEST_P(timelines, stages_come_back_and_fit_into_the_total) {
    rig r(GetParam(), [](exchange one) {
        one.record(stage::copy, 1ms);
        one.record(stage::copy, 500us);
        {
            const stage_timer timer(one, stage::preprocessing);
            std::this_thread::sleep_for(3ms);
        }
        {
            const stage_timer timer(one, stage::inference);
            std::this_thread::sleep_for(5ms);
        }
        std::this_thread::sleep_for(2ms);
        echo(std::move(one));
    });
    auto client = r.connect();
    for (int i = 0; i < 5; ++i) {
        const auto start = std::chrono::steady_clock::now();
        client.send_seed(10'000, 1);
        const completion c = client.next();
        const auto elapsed = std::chrono::steady_clock::now() - start;
        ASSERT_EQ(c.status, status::ok);
        const timeline& t = c.timeline;
        EXPECT_GE(t.total, 10ms);
        EXPECT_LE(t.total, elapsed);
        EXPECT_GE(t.copy, 1500us - 1us);
        EXPECT_LE(t.copy, handlers_on_gpu() ? t.server + 1500us : 1501us);
        EXPECT_GE(t.preprocessing, 3ms);
        EXPECT_GE(t.inference, 5ms);
        EXPECT_GE(t.server, t.queue + t.preprocessing + t.inference);
        EXPECT_GE(t.server, 10ms);
        // Stages travel in ticks.
        EXPECT_LE(t.request + t.server + t.response, t.total + 1us);
        EXPECT_GE(t.request, 0ns);
        EXPECT_GE(t.response, 0ns);
    }
}

TEST_P(timelines, time_in_the_queue_is_reported) {
    std::atomic<bool> all_sent{false};
    rig r(GetParam(), [&](exchange one) {
        (void)eventually(
            patience(5s), [&] { return all_sent.load(); }, 100us);
        std::this_thread::sleep_for(5ms);
        echo(std::move(one));
    });
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 4; ++i) client.send_seed(10, i);
    all_sent = true;
    nanoseconds longest{};
    for (int i = 0; i < 4; ++i) {
        const completion c = client.next();
        const timeline& t = c.timeline;
        EXPECT_LE(t.request + t.server + t.response, t.total + 1us);
        EXPECT_LE(t.queue, t.server);
        longest = std::max(longest, t.total);
    }
    EXPECT_GE(longest, 20ms) << "the last of four waits for the other three";
}

TEST_P(timelines, senseless_records_do_no_harm) {
    rig r(GetParam(), [](exchange one) {
        one.record(stage::copy, -5ms);
        one.record(stage::inference, std::chrono::hours{100'000});
        echo(std::move(one));
    });
    auto client = r.connect();
    client.send_seed(10, 1);
    const completion c = client.next();
    EXPECT_EQ(c.status, status::ok);
    EXPECT_GE(c.timeline.copy, 0ns);
    EXPECT_GT(c.timeline.inference, std::chrono::minutes{4}) << "saturated, not wrapped round";
}

ACCEL_INSTANTIATE(timelines, all_backends);

}  // namespace
}  // namespace accel::tests
