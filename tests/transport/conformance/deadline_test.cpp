// SPDX-License-Identifier: Apache-2.0
// Deadlines: a call ends in time whatever the server does, and its slot rests until the late answer is in.
#include "rig.hpp"

#include <atomic>

namespace accel::tests {
namespace {

class deadlines : public on_every_backend {};

constexpr nanoseconds brief = 100ms;

/// Shorter than the time-outs of `calm_client`.
nanoseconds soon() {
    return patience(10s);
}

channel_options one_slot() {
    channel_options options = calm_client();
    options.slots = 1;
    options.request_bytes = options.response_bytes = 4096;
    return options;
}

TEST_P(deadlines, late_answer_is_dropped_and_the_slot_comes_back) {
    with_enough_time(brief, [](nanoseconds timeout) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto client = r.connect(one_slot());
        const auto start = std::chrono::steady_clock::now();
        client.send_seed(1000, 1, {.timeout = timeout, .tag = 77});
        completion c = client.next(timeout + until_hung());
        const auto elapsed = std::chrono::steady_clock::now() - start;
        EXPECT_EQ(c.status, status::timed_out);
        EXPECT_TRUE(c.response.empty());
        EXPECT_GE(elapsed, timeout);
        EXPECT_LT(elapsed, timeout + soon());
        c.release();
        if (!reaches_its_handler(r, held)) return false;
        EXPECT_EQ(client->statistics().quarantined, 1U);
        const auto call = client.begin();
        EXPECT_EQ(call.code(), status::again) << "the slot is in quarantine";

        exchange late = held.take();
        EXPECT_TRUE(matches(late.request(), 1)) << "the request stays as it was until the answer";
        echo(std::move(late));
        EXPECT_TRUE(client.slot_comes_back());
        EXPECT_EQ(client->statistics().quarantined, 0U);
        EXPECT_EQ(client->statistics().stale, 1U);

        client.send_seed(10, 2);
        echo(held.take());
        EXPECT_EQ(client.finish(status::ok), 1U);
        return true;
    });
}

TEST_P(deadlines, lent_memory_is_never_touched_after_its_completion) {
    with_enough_time(brief, [](nanoseconds timeout) {
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        auto client = r.connect(one_slot());
        region memory = r.ctx().allocate(8192).value();
        const slice payload = memory.part(0, 4096).value();
        const slice target = memory.part(4096, 4096).value();
        fill(payload.bytes(), 5);
        const auto call = client.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(client.submit(call->id, payload, {.timeout = timeout, .trace_id = 5, .response_into = target}),
                  status::ok);
        if (!reaches_its_handler(r, held)) return client.finish(status::timed_out, timeout + until_hung()) != 1;
        exchange late = held.take();

        completion c;
        // A transport that shares the memory may hold the completion back until it releases the memory, with the
        // late answer.
        const bool before_the_answer = client.wait({&c, 1}, timeout + patience(300ms)) == 1;
        if (before_the_answer) {
            fill(payload.bytes(), 6);
            fill(target.bytes(), 7);
            if (GetParam().network) {
                EXPECT_TRUE(matches(late.request(), 5));
            }
        }
        echo(std::move(late));
        if (!before_the_answer) {
            c = client.next();
            fill(target.bytes(), 7);
        }
        EXPECT_EQ(c.status, status::timed_out);
        c.release();
        EXPECT_TRUE(client.slot_comes_back());
        EXPECT_TRUE(matches(target.bytes(), 7)) << "the late response was written into memory given back";
        return true;
    });
}

TEST_P(deadlines, the_server_sees_the_time_that_is_left) {
    with_enough_time(200ms, [](nanoseconds timeout) {
        std::atomic<std::int64_t> left_ns{0};
        held_exchanges held;
        rig r(GetParam(), [&](exchange one) {
            left_ns = one.time_left().count();
            held.keep(std::move(one));
        });
        auto client = r.connect(one_slot());
        client.send({}, {.timeout = timeout});
        const bool in_time = reaches_its_handler(r, held) && left_ns > 0;
        if (in_time) {
            EXPECT_LE(nanoseconds{left_ns.load()}, timeout);
            exchange one = held.take();
            EXPECT_TRUE(eventually(timeout + until_hung(), [&] { return one.time_left() == 0ns; }));
            held.keep(std::move(one));
        }
        EXPECT_EQ(client.finish(status::timed_out, timeout + until_hung()), 1U);
        held.clear();
        EXPECT_TRUE(client.slot_comes_back());
        return in_time;
    });
}

TEST_P(deadlines, a_request_that_comes_too_late_is_not_handled) {
    if (GetParam().scheme == "gpu") GTEST_SKIP() << "kernels learn the clock later: tests/kernels/device";
    std::atomic<int> handled{0};
    rig r(GetParam(), [&](exchange one) {
        ++handled;
        echo(std::move(one));
    });
    auto client = r.connect();
    client.send_seed(10, 1, {.timeout = 1ns});
    EXPECT_EQ(client.finish(status::timed_out), 1U);
    client.send_seed(10, 2);  // behind the first one
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(handled.load(), 1);
    EXPECT_EQ(r.served().statistics().expired, 1U);
}

TEST_P(deadlines, call_timeout_of_the_channel_is_the_default) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = one_slot();
    options.call_timeout = brief;
    auto client = r.connect(options);
    client.send({});
    const completion c = client.next(soon());
    EXPECT_EQ(c.status, status::timed_out);
    EXPECT_GE(c.timeline.total, brief);
    EXPECT_EQ(c.timeline.server, 0ns);
    (void)reaches_its_handler(r, held);
    held.clear();
}

ACCEL_INSTANTIATE(deadlines, all_backends);

}  // namespace
}  // namespace accel::tests
