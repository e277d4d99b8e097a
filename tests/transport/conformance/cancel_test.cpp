// SPDX-License-Identifier: Apache-2.0
// Cancellation: what a cancelled call leaves, and who hears of it. (random_test.cpp cancels at any moment.)
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
    c.release();
    EXPECT_EQ(client->statistics().quarantined, 1U);
    EXPECT_TRUE(matches(open.request(), 3));
    echo(std::move(open));
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(client->statistics().stale, 1U);
    EXPECT_EQ(client->statistics().quarantined, 0U);
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
        completion late = client.next();
        EXPECT_TRUE(late.status == status::timed_out || late.status == status::ok) << to_string(late.status);
        late.release();
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
        return client.poll({&c, 1}) == 1;
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
