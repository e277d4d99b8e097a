// SPDX-License-Identifier: Apache-2.0
// A pool of channels: a channel for each thread, hosts that take turns and are left out, and how it closes.
#include "client_rig.hpp"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace accel::tests {
namespace {

class pools : public client_rig {
  protected:
    [[nodiscard]] channel_pool pool_to(const std::string& uri, const pool_options& limits = {}) {
        auto made = channel_pool::open(ctx, uri, client_options(), limits);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    [[nodiscard]] static std::string ask(channel_pool& pool, std::string_view text = {}) {
        auto answer = pool.call(bytes_of(text));
        return answer ? text_of((*answer)->bytes()) : std::string{to_string(answer.code())};
    }
    static void in_threads(std::size_t count, const std::function<void(std::size_t)>& body) {
        std::vector<std::thread> all;
        for (std::size_t i = 0; i < count; ++i) all.emplace_back(body, i);
        for (std::thread& each : all) each.join();
    }
};

/// Threads that all go on once all have come.
class meeting {
  public:
    explicit meeting(std::size_t expected) : missing_(expected) {}
    void come() {
        std::unique_lock lock(mutex_);
        if (--missing_ == 0) all_here_.notify_all();
        all_here_.wait_for(lock, patience(20s), [this] { return missing_ == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable all_here_;
    std::size_t missing_;
};

TEST_P(pools, threads_call_at_once_and_get_their_own_answers) {
    const server there = serve(place("many"), echo_back, 2);
    channel_pool pool = pool_to(where(there));
    std::atomic<int> wrong{0};
    in_threads(8, [&](std::size_t thread) {
        for (int i = 0; i < 100; ++i) {
            const std::string text = "thread " + std::to_string(thread) + " call " + std::to_string(i);
            wrong += ask(pool, text) != text;
        }
    });
    EXPECT_EQ(wrong, 0);
    const pool_statistics seen = pool.statistics();
    EXPECT_LE(seen.made, 8U);
    EXPECT_EQ(seen.refused, 0U);
}

TEST_P(pools, a_thread_keeps_its_channel) {
    const server there = serve(place("keeps"));
    channel_pool pool = pool_to(where(there));
    EXPECT_EQ(pool.statistics().channels, 0U) << "nothing is made before the first call";
    for (int i = 0; i < 5; ++i) EXPECT_EQ(ask(pool, "x"), "x");
    EXPECT_EQ(pool.statistics().made, 1U);
    auto use = pool.take();
    ASSERT_TRUE(use);
    auto again = pool.take();
    ASSERT_TRUE(again);
    EXPECT_EQ(&**use, &**again);
}

TEST_P(pools, two_threads_have_two_channels) {
    const server there = serve(place("two"));
    channel_pool pool = pool_to(where(there));
    std::mutex mutex;
    std::set<const channel*> seen;
    meeting both(2);
    in_threads(2, [&](std::size_t) {
        auto use = pool.take();
        ASSERT_TRUE(use);
        both.come();
        const std::lock_guard lock(mutex);
        seen.insert(&**use);
    });
    EXPECT_EQ(seen.size(), 2U);
}

TEST_P(pools, calls_in_flight_are_polled_by_their_thread) {
    const server there = serve(place("flight"));
    channel_pool pool = pool_to(where(there));
    auto use = pool.take();
    ASSERT_TRUE(use);
    channel& mine = **use;
    for (int i = 0; i < 3; ++i) {
        call_view call;
        ASSERT_EQ(mine.begin(call), status::ok);
        ASSERT_EQ(mine.submit(call.id, 10), status::ok);
    }
    std::size_t done = 0;
    std::array<completion, 4> all;
    while (done < 3) {
        const std::size_t count = mine.wait(all, patience(5s));
        ASSERT_GT(count, 0U);
        for (const completion& each : std::span{all}.first(count)) (void)mine.release(each.id);
        done += count;
    }
}

TEST_P(pools, more_threads_than_channels_are_refused) {
    const server there = serve(place("refused"));
    channel_pool pool = pool_to(where(there), {.max_channels = 1});
    auto use = pool.take();
    ASSERT_TRUE(use);
    in_threads(1, [&](std::size_t) {
        const auto refused = pool.take();
        ASSERT_EQ(refused.code(), status::overloaded);
        EXPECT_NE(refused.error().message.find("max_channels"), std::string::npos) << refused.error().message;
    });
    EXPECT_EQ(pool.statistics().refused, 1U);
}

TEST_P(pools, a_thread_that_ends_leaves_its_channel_to_the_next) {
    const server there = serve(place("next"));
    channel_pool pool = pool_to(where(there), {.max_channels = 1});
    for (int i = 0; i < 3; ++i) in_threads(1, [&](std::size_t) { EXPECT_EQ(ask(pool, "hello"), "hello"); });
    EXPECT_EQ(pool.statistics().made, 1U);
    EXPECT_EQ(pool.statistics().channels, 1U);
}

TEST_P(pools, assigned_use_returns_its_channel_and_has_the_other) {
    const server there = serve(place("assigned"));
    channel_pool first = pool_to(where(there)), second = pool_to(where(there));
    auto use = first.take();
    auto other = second.take();
    ASSERT_TRUE(use && other);
    const channel* const wanted = &**other;
    *use = std::move(*other);
    ASSERT_EQ(first.leave(), status::ok) << "its channel is still in use";
    ASSERT_EQ(second.leave(), status::invalid_state);
    EXPECT_EQ(&**use, wanted);
}

TEST_P(pools, leave_returns_a_channel_unless_it_is_in_use) {
    const server there = serve(place("leave"));
    channel_pool pool = pool_to(where(there), {.max_channels = 1});
    EXPECT_EQ(pool.leave(), status::ok) << "this thread has none";
    {
        auto answer = pool.call(bytes_of("kept"));
        ASSERT_TRUE(answer);
        EXPECT_EQ(pool.leave(), status::invalid_state);
        EXPECT_EQ(text_of((*answer)->bytes()), "kept");
    }
    EXPECT_EQ(pool.leave(), status::ok);
    in_threads(1, [&](std::size_t) { EXPECT_EQ(ask(pool, "other"), "other"); });
    EXPECT_EQ(pool.statistics().made, 1U);
}

TEST_P(pools, a_channel_with_an_unread_response_is_not_reused) {
    const server there = serve(place("unread"));
    channel_pool pool = pool_to(where(there), {.max_channels = 1});
    in_threads(1, [&](std::size_t) {
        auto use = pool.take();
        ASSERT_TRUE(use);
        call_view forgotten;
        ASSERT_EQ((*use)->begin(forgotten), status::ok);
    });
    EXPECT_EQ(pool.statistics().channels, 0U);
    EXPECT_EQ(ask(pool, "again"), "again");
    EXPECT_EQ(pool.statistics().made, 2U);
}

TEST_P(pools, hosts_take_turns) {
    const server first = serve(place("first"), names_itself("first"));
    const server second = serve(place("second"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}));
    std::mutex mutex;
    std::map<std::string, int> seen;
    meeting all(4);
    in_threads(4, [&](std::size_t) {
        const std::string name = ask(pool);
        all.come();
        const std::lock_guard lock(mutex);
        ++seen[name];
    });
    EXPECT_EQ(seen["first"], 2);
    EXPECT_EQ(seen["second"], 2);
}

TEST_P(pools, a_lost_host_is_left_out_and_tried_again_after_a_time) {
    std::optional<server> first(serve(place("dies"), names_itself("first")));
    const std::string first_uri = where(*first);
    const server second = serve(place("stays"), names_itself("second"));
    channel_pool pool = pool_to(joined({first_uri, where(second)}), {.host_pause = 300ms});
    ASSERT_EQ(ask(pool), "first");
    first.reset();
    // A call may still meet the loss; then the thread is with the other host.
    ASSERT_TRUE(eventually(patience(10s), [&] { return ask(pool) == "second"; }));
    EXPECT_EQ(pool.statistics().lost, 1U);
    first.emplace(serve(first_uri, names_itself("first")));
    EXPECT_EQ(ask(pool), "second") << "a thread keeps its channel";
    EXPECT_TRUE(eventually(patience(10s), [&] {
        std::atomic<int> found{0};
        meeting all(2);
        EXPECT_EQ(pool.leave(), status::ok);
        in_threads(2, [&](std::size_t) {
            found += ask(pool) == "first";
            all.come();
        });
        return found > 0;
    })) << "later threads";
    EXPECT_EQ(pool.statistics().hosts_out, 0U);
}

TEST_P(pools, a_host_that_was_left_out_is_tried_when_all_others_fail) {
    std::optional<server> there(serve(place("back")));
    const std::string uri = where(*there);
    channel_pool pool = pool_to(uri, {.host_pause = 1h});
    ASSERT_EQ(ask(pool, "x"), "x");
    there.reset();
    // A call may meet the loss; the next one finds the host gone.
    ASSERT_TRUE(eventually(patience(10s), [&] { return ask(pool, "x") != "x" && pool.statistics().hosts_out == 1; }));
    there.emplace(serve(uri));
    EXPECT_TRUE(eventually(patience(10s), [&] { return ask(pool, "x") == "x"; }));
    EXPECT_EQ(pool.statistics().hosts_out, 0U);
}

TEST_P(pools, completions_of_a_lost_channel_are_not_lost) {
    std::mutex mutex;
    std::vector<exchange> held;
    std::optional<server> there(serve(place("completions"), [&](exchange one) {
        const std::lock_guard lock(mutex);
        held.push_back(std::move(one));
    }));
    channel_pool pool = pool_to(where(*there));
    call_view call;
    {
        auto use = pool.take();
        ASSERT_TRUE(use);
        ASSERT_EQ((*use)->begin(call), status::ok);
        ASSERT_EQ((*use)->submit(call.id, 1), status::ok);
        ASSERT_TRUE(eventually(patience(5s), [&] {
            const std::lock_guard lock(mutex);
            return !held.empty();
        }));
    }
    there.reset();
    {
        auto noticing = pool.take();
        ASSERT_TRUE(noticing);
        ASSERT_TRUE(eventually(patience(10s), [&] {
            (void)(*noticing)->poll({});
            return !(*noticing)->connected();
        }));
    }
    auto use = pool.take();
    ASSERT_TRUE(use) << use.error().message;
    completion ended;
    ASSERT_EQ((*use)->wait({&ended, 1}, patience(10s)), 1U);
    EXPECT_EQ(ended.id, call.id);
    EXPECT_NE(ended.status, status::ok);
    held.clear();
}

TEST_P(pools, close_waits_for_the_threads_and_then_takes_no_calls) {
    const server there = serve(place("close"));
    channel_pool pool = pool_to(where(there));
    std::atomic<bool> inside{false};
    std::atomic<bool> done{false};
    std::thread user([&] {
        auto use = pool.take();
        ASSERT_TRUE(use);
        inside = true;
        std::this_thread::sleep_for(200ms);
        EXPECT_TRUE((*use)->call(bytes_of("still good")));
        done = true;
    });
    ASSERT_TRUE(eventually(patience(10s), [&] { return inside.load(); }));
    EXPECT_EQ(pool.close(patience(10s)), status::ok);
    EXPECT_TRUE(done);
    EXPECT_EQ(pool.call({}).code(), status::closed);
    EXPECT_EQ(pool.statistics().channels, 0U);
    user.join();
}

TEST_P(pools, close_gives_up_at_its_deadline_and_the_thread_finishes) {
    const server there = serve(place("deadline"));
    channel_pool pool = pool_to(where(there));
    std::optional<pooled_channel> use(pool.take().value());
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(pool.close(50ms), status::timed_out);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
    EXPECT_TRUE((*use)->call(bytes_of("mine"))) << "nobody has taken it away";
    EXPECT_EQ(pool.statistics().channels, 1U);
    use.reset();
    EXPECT_EQ(pool.statistics().channels, 0U) << "it closed when its thread was done with it";
    EXPECT_EQ(pool.close(0ns), status::ok);
}

TEST_P(pools, a_pool_may_be_destroyed_before_its_threads_end) {
    const server there = serve(place("before"));
    meeting called(2);
    meeting gone(2);
    auto pool = std::make_unique<channel_pool>(pool_to(where(there)));
    std::thread user([&] {
        EXPECT_EQ(ask(*pool, "a"), "a");
        called.come();
        gone.come();
    });
    called.come();
    pool.reset();
    gone.come();
    user.join();
}

TEST_P(pools, threads_come_and_go_while_a_pool_closes) {
    const server there = serve(place("race"), echo_back, 2);
    for (int round = 0; round < 5; ++round) {
        channel_pool pool = pool_to(where(there));
        std::atomic<bool> stop{false};
        std::vector<std::thread> users;
        for (int i = 0; i < 4; ++i) {
            users.emplace_back([&] {
                while (!stop) {
                    const auto answer = pool.call(bytes_of("call"));
                    if (!answer) {
                        EXPECT_EQ(answer.code(), status::closed) << answer.error().message;
                        return;
                    }
                }
            });
        }
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(pool.close(patience(10s)), status::ok);
        stop = true;
        for (std::thread& each : users) each.join();
    }
}

ACCEL_OVER_EVERY_TRANSPORT(pools);

TEST(pool, refuses_bad_options_at_once) {
    auto ctx = context::open({.log = log_level::off}).value();
    const auto code = [&](std::string_view uri, const pool_options& limits = {}) {
        return channel_pool::open(ctx, uri, {}, limits).code();
    };
    EXPECT_EQ(code("tcp://a:1?insecure=true"), status::ok) << "it connects to nothing yet";
    EXPECT_EQ(code("tcp://a:1?slotz=4"), status::invalid_argument);
    EXPECT_EQ(code("tcp://a:1,:2"), status::invalid_argument);
    EXPECT_EQ(code("pigeon://a:1"), status::unsupported);
    EXPECT_EQ(code("tcp://a:1", {.max_channels = 0}), status::invalid_argument);
    EXPECT_EQ(code("tcp://a:1", {.host_pause = -1s}), status::invalid_argument);
}

}  // namespace
}  // namespace accel::tests
