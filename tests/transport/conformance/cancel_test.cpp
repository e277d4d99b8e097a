// SPDX-License-Identifier: Apache-2.0
// Cancellation: at once, exactly once, and never a wrong answer afterwards.
#include "rig.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class cancelling : public on_every_backend {};

TEST_P(cancelling, cancel_ends_a_call_before_its_answer) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const call_id id = client.send_seed(1000, 3, {.tag = 3});
    exchange open = held.take();
    EXPECT_EQ(client.cancel(id), status::ok);
    completion c;
    ASSERT_EQ(client.poll({&c, 1}), 1U) << "a cancelled call whose payload lies in its slot completes at once";
    EXPECT_EQ(c.status, status::cancelled);
    EXPECT_EQ(c.tag, 3U);
    EXPECT_EQ(client.cancel(id), status::invalid_state);
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_EQ(client->statistics().quarantined, 1U);
    EXPECT_TRUE(matches(open.request(), 3));
    echo(std::move(open));
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(client->statistics().stale, 1U);
    EXPECT_EQ(client->statistics().quarantined, 0U);
}

TEST_P(cancelling, cancel_of_a_completed_call_gives_one_completion) {
    rig r(GetParam());
    auto client = r.connect();
    for (int i = 0; i < effort(100); ++i) {
        ASSERT_TRUE(client.slot_comes_back());  // cancelled ones rest until their answers are in
        const call_id id = client.send_seed(10, 1);
        if (i % 2 == 0) std::this_thread::sleep_for(500us);
        (void)client.cancel(id);
        const completion c = client.next();
        EXPECT_TRUE(c.status == status::ok || c.status == status::cancelled) << to_string(c.status);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(cancelling, lent_memory_comes_back_untouched) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    auto memory = r.ctx().allocate(128 << 10);
    ASSERT_TRUE(memory);
    const slice payload = memory->part(0, 64 << 10).value();
    const slice target = memory->part(64 << 10, 64 << 10).value();
    fill(payload.bytes(), 1);
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    ASSERT_EQ(client.submit(call.id, payload, {.trace_id = 1, .response_into = target}), status::ok);
    exchange open = held.take();
    ASSERT_EQ(client.cancel(call.id), status::ok);
    completion c;
    const bool at_once = client.wait({&c, 1}, patience(300ms)) == 1;
    if (at_once) fill(target.bytes(), 9);
    echo(std::move(open));
    if (!at_once) {
        c = client.next();
        fill(target.bytes(), 9);
    }
    EXPECT_EQ(c.status, status::cancelled);
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_TRUE(matches(target.bytes(), 9));
}

/// Answers from another thread after a random pause, so that cancels hit every moment of a call.
class late_answers {
  public:
    late_answers() : thread_([this] { run(); }) {}
    ~late_answers() {
        stop_ = true;
        thread_.join();
    }
    handler service() { return held_.keeper(); }

  private:
    void run() {
        for (std::uint64_t i = 0; !stop_; ++i) {
            std::this_thread::sleep_for(std::chrono::microseconds{mix(i) % 200});
            for (std::size_t n = held_.size(); n > 0; --n) {
                exchange one = held_.take();
                if (!matches(one.request(), one.trace_id())) ADD_FAILURE() << "a request changed under its handler";
                echo(std::move(one));
            }
        }
    }
    held_exchanges held_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

TEST_P(cancelling, cancelled_and_answered_calls_mix_under_load) {
    auto answers = std::make_unique<late_answers>();
    rig r(GetParam(), answers->service());
    auto client = r.connect();
    std::uint64_t ok = 0;
    std::uint64_t cancelled = 0;
    std::vector<call_id> open;
    const auto take = [&](const completion& c) {
        if (c.status == status::ok) {
            ++ok;
            EXPECT_TRUE(matches(c.response, c.trace_id)) << "an answer to another call";
        } else {
            EXPECT_EQ(c.status, status::cancelled);
            ++cancelled;
        }
        std::erase(open, c.id);
        EXPECT_EQ(client.release(c.id), status::ok);
    };
    const auto calls = static_cast<std::uint64_t>(effort(3000));
    for (std::uint64_t i = 0; i < calls;) {
        call_view call;
        if (client.begin(call) == status::ok) {
            const std::size_t length = mix(i) % 2000;
            fill(call.request.first(length), i);
            ASSERT_EQ(client.submit(call.id, length, {.trace_id = i}), status::ok);
            open.push_back(call.id);
            ++i;
        }
        if (!open.empty() && mix(i ^ 0x55U) % 3 == 0) (void)client.cancel(open[mix(i) % open.size()]);
        completion c;
        while (client.poll({&c, 1}) == 1) take(c);
    }
    while (client.open_calls() > 0) take(client.next());
    EXPECT_EQ(ok + cancelled, calls);
    EXPECT_GT(ok, 0U);
    EXPECT_GT(cancelled, 0U);
    EXPECT_TRUE(client.all_slots_free());
    r.destroy_server();
}

TEST_P(cancelling, a_cancel_reaches_the_handler_and_spares_later_calls) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = calm_client();
    options.slots = 1;
    auto client = r.connect(options);
    for (int round = 0; round < 3; ++round) {
        const call_id first = client.send_seed(10, 1);
        exchange open = held.take();
        EXPECT_FALSE(open.cancelled());
        EXPECT_FALSE(open.stop_token().stop_requested());
        ASSERT_EQ(client.cancel(first), status::ok);
        EXPECT_TRUE(eventually(patience(5s), [&] { return open.cancelled(); }));
        EXPECT_TRUE(eventually(patience(5s), [&] { return open.stop_token().stop_requested(); }));
        EXPECT_EQ(client.finish(status::cancelled), 1U);
        EXPECT_EQ(open.reply(0), status::ok) << "gives the client its slot back";
        EXPECT_TRUE(client.slot_comes_back());

        client.send_seed(10, 2);
        exchange next = held.take();
        EXPECT_FALSE(next.cancelled());
        EXPECT_FALSE(next.stop_token().stop_requested());
        echo(std::move(next));
        EXPECT_EQ(client.finish(status::ok), 1U);
    }
}

/// A handler that works on its worker's thread until it is stopped, as most do.
class waits_for_stop {
  public:
    [[nodiscard]] handler service() {
        return [this](exchange one) {
            ++started_;
            const std::stop_token stop = one.stop_token();
            std::unique_lock lock(mutex_);
            const bool ended = changed_.wait_for(lock, stop, 3 * until_hung(), [] { return false; });
            EXPECT_TRUE(!ended && stop.stop_requested()) << "nobody stopped the handler";
            EXPECT_TRUE(one.cancelled());
            (void)one.reply(0);
            ++ended_;
        };
    }
    [[nodiscard]] bool has_started(int count) const { return started_ == count; }
    [[nodiscard]] bool started(int count) {
        return eventually(patience(5s), [&] { return has_started(count); });
    }
    [[nodiscard]] bool ended(int count) {
        return eventually(patience(8s), [&] { return ended_ == count; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::atomic<int> started_{0};
    std::atomic<int> ended_{0};
};

TEST_P(cancelling, a_handler_that_waits_is_stopped_by_cancel_deadline_and_loss) {
    waits_for_stop work;
    rig r(GetParam(), work.service());
    {
        auto client = r.connect();
        const call_id first = client.send_seed(10, 1);
        ASSERT_TRUE(work.started(1));
        ASSERT_EQ(client.cancel(first), status::ok);
        EXPECT_TRUE(work.ended(1));
        EXPECT_EQ(client.finish(status::cancelled), 1U);

        with_enough_time(200ms, [&](nanoseconds timeout) {
            const std::uint64_t expired = r.served().statistics().expired;
            client.send_seed(10, 1, {.timeout = timeout});
            if (reaches_its_handler(
                    r, [&] { return work.has_started(2); }, expired))
                return true;
            EXPECT_EQ(client.finish(status::timed_out, timeout + until_hung()), 1U);
            return false;
        });
        EXPECT_TRUE(work.ended(2)) << "without a word of the client";
        const completion late = client.next();
        EXPECT_TRUE(late.status == status::timed_out || late.status == status::ok) << to_string(late.status);
        EXPECT_EQ(client.release(late.id), status::ok);
        EXPECT_TRUE(client.all_slots_free());

        client.send_seed(10, 1);
        ASSERT_TRUE(work.started(3));
        client.forget();
    }
    EXPECT_TRUE(work.ended(3)) << "the client has left";
}

TEST_P(cancelling, callbacks_run_once_and_not_after_the_answer) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    std::atomic<int> called{0};
    std::vector<call_id> calls;
    for (int i = 0; i < 2; ++i) calls.push_back(client.send_seed(10, 1));
    exchange answered = held.take();
    exchange stopped = held.take();
    const auto count = [&] { ++called; };
    const std::stop_callback of_answered(answered.stop_token(), count);
    const std::stop_callback of_stopped(stopped.stop_token(), count);
    echo(std::move(answered));
    EXPECT_TRUE(eventually(patience(5s), [&] {
        completion c;
        return client.poll({&c, 1}) == 1 && client.release(c.id) == status::ok;
    }));
    for (const call_id each : calls) (void)client.cancel(each);  // one of them is still open
    EXPECT_TRUE(eventually(patience(5s), [&] { return called == 1; }));
    EXPECT_EQ(client.finish(status::cancelled), 1U);
    (void)stopped.reply(0);
    EXPECT_TRUE(client.all_slots_free());
    r.destroy_server();
    EXPECT_EQ(called.load(), 1);
}

TEST_P(cancelling, a_request_cancelled_in_transit_reaches_no_handler) {
    std::atomic<bool> open{false};
    std::atomic<int> handled{0};
    rig r(GetParam(), [&](exchange one) {
        ++handled;
        EXPECT_TRUE(eventually(patience(10s), [&] { return open.load(); }));
        (void)one.reply(0);
    });
    auto client = r.connect();
    client.send_seed(10, 1);
    ASSERT_TRUE(eventually(patience(5s), [&] { return handled == 1; }));
    const call_id dead = client.send_seed(10, 2);  // waits while the worker is in the handler
    ASSERT_EQ(client.cancel(dead), status::ok);
    // Cancels leave before the second question, on the same connection.
    for (int i = 0; i < 2; ++i) (void)client->resolve("any");
    open = true;
    EXPECT_EQ(client.finish(status::cancelled), 1U) << "the other was answered";
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(handled.load(), 1);
    EXPECT_EQ(r.served().statistics().cancelled, 1U);
}

ACCEL_INSTANTIATE(cancelling, all_backends);

}  // namespace
}  // namespace accel::tests
