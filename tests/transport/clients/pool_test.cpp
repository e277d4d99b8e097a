// SPDX-License-Identifier: Apache-2.0
// A pool of channels: a channel for each thread, hosts that take turns and are left out, and how it closes.
#include "pool_rig.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace accel::tests {
namespace {

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
    EXPECT_LE(pool.statistics().made, 8U);
}

/// Threads that come, call, keep responses, leave and end in random order.
class pool_sequence {
  public:
    pool_sequence(channel_pool& pool, std::size_t most) : pool_(pool), most_(most), threads_(4) {
        for (auto& each : threads_) each = std::make_unique<told_thread>();
    }
    void step() {
        std::unique_ptr<told_thread>& one = threads_.at(random_() % threads_.size());
        switch (random_() % 6) {
            case 0:
                one = std::make_unique<told_thread>();  // the other ends
                break;
            case 1:
                one->tell([&] { EXPECT_EQ(pool_.leave(), status::ok); });
                one->seated = false;
                break;
            case 2:
                one->tell([&] { one->kept.reset(); });
                break;
            default:
                one->tell([&] { call(*one); });
                one->seated = true;
        }
        const auto seated = static_cast<std::size_t>(std::ranges::count(threads_, true, &pool_sequence::has_seat));
        channels_ = std::max(channels_, std::min(seated, most_));
        const pool_statistics seen = pool_.statistics();
        EXPECT_EQ(seen.channels, channels_) << "a channel is made only if no other is free";
        EXPECT_EQ(seen.made, channels_);
    }

  private:
    static bool has_seat(const std::unique_ptr<told_thread>& one) { return one->seated; }
    void call(told_thread& one) {
        const std::string text = std::to_string(random_());
        auto answer = pool_.call(bytes_of(text));
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(text_of(answer->response), text);
        if (random_() % 4 == 0) one.kept.emplace(std::move(*answer));
    }

    channel_pool& pool_;
    std::size_t most_;
    std::mt19937 random_{1};
    std::vector<std::unique_ptr<told_thread>> threads_;
    std::size_t channels_ = 0;
};

TEST_P(pools, each_thread_has_a_channel_of_its_own_as_far_as_there_are_enough_and_leaves_it_to_the_next) {
    const server there = serve(place("threads"));
    channel_options options = client_options();
    options.slots = 8;  // of which each thread may keep one
    channel_pool pool = channel_pool::open(ctx, where(there), options, {.max_channels = 2}).value();
    EXPECT_EQ(pool.statistics().channels, 0U) << "nothing is made before the first call";
    EXPECT_EQ(pool.leave(), status::ok) << "this thread has none";
    pool_sequence random(pool, 2);
    for (int i = 0; i < 200; ++i) {
        random.step();
        if (HasFailure()) FAIL() << "step " << i;
    }
}

TEST_P(pools, a_thread_takes_over_the_channel_of_one_that_has_left) {
    const server there = serve(place("left"));
    channel_pool pool = pool_to(where(there));
    for (int i = 0; i < 2; ++i) in_threads(1, [&](std::size_t) { EXPECT_EQ(ask(pool, "x"), "x"); });
    EXPECT_EQ(pool.statistics().made, 1U);
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
    channel_pool pool = pool_to(joined({first_uri, where(second)}), {.host_pause = 20ms});
    ASSERT_EQ(ask(pool), "first");
    first.reset();
    // A call may still meet the loss; then all go to the other host.
    ASSERT_TRUE(eventually([&] { return ask(pool) == "second" && pool.statistics().hosts_out == 1; }));
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(pool), "second");
    EXPECT_EQ(pool.statistics().lost, 1U);
    first.emplace(serve(first_uri, names_itself("first")));
    EXPECT_TRUE(eventually([&] { return pool.statistics().hosts_out == 0; })) << "the pool connects to it";
    EXPECT_NE(ask(pool), ask(pool));
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

TEST_P(pools, calls_that_fail_eject_their_host_for_a_while) {
    std::atomic<bool> fails{true};
    const server first = serve(place("fails"), [&](exchange one) {
        if (fails) return (void)one.fail(status::peer_lost, 0, "its own server is away");
        names_itself("first")(std::move(one));
    });
    const server second = serve(place("works"), names_itself("second"));
    const std::string both = joined({where(first), where(second)});
    channel_pool pool = pool_to(both, {.host_pause = 1h, .eject_after = 3});
    channel_pool brief = pool_to(both, {.host_pause = 20ms, .eject_after = 3});
    for (channel_pool* each : {&pool, &brief}) {
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(ask(*each), "peer_lost");
            EXPECT_EQ(ask(*each), "second");
        }
        EXPECT_EQ(each->statistics().ejected, 0U);
        EXPECT_EQ(ask(*each), "peer_lost");
        EXPECT_EQ(each->statistics().ejected, 1U);
    }
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(pool), "second");
    EXPECT_EQ(pool.statistics().hosts_out, 1U);
    fails = false;
    EXPECT_TRUE(eventually([&] { return brief.statistics().hosts_out == 0; }));
    EXPECT_NE(ask(brief), ask(brief)) << "calls go there again";
    EXPECT_EQ(brief.statistics().lost, 0U) << "over the same channels";
}

TEST_P(pools, only_host_is_not_ejected) {
    const server there = serve(place("only"), [](exchange one) { (void)one.fail(status::peer_lost, 0, "away"); });
    channel_pool pool = pool_to(where(there), {.eject_after = 1});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(ask(pool), "peer_lost");
    EXPECT_EQ(pool.statistics().ejected, 0U);
    EXPECT_EQ(pool.statistics().lost, 0U);
}

TEST_P(pools, answers_and_other_failures_do_not_eject) {
    std::atomic<int> calls{0};
    const server first = serve(place("mixed"), [&](exchange one) {
        switch (++calls % 3) {
            case 0:
                return (void)one.fail(status::invalid_argument, 0, "a mistake");
            case 1:
                return (void)one.fail(status::peer_lost, 0, "away");
            default:
                return (void)one.fail(status::device_lost, 0, "away");
        }
    });
    const server second = serve(place("idle"), names_itself("second"));
    channel_pool pool = pool_to(joined({where(first), where(second)}), {.eject_after = 3});
    for (int i = 0; i < 60; ++i) (void)ask(pool);
    EXPECT_GE(calls, 30);
    EXPECT_EQ(pool.statistics().ejected, 0U);
    channel_pool never = pool_to(joined({where(first), where(second)}), {.eject_after = 0});
    for (int i = 0; i < 20; ++i) (void)ask(never);
    EXPECT_EQ(never.statistics().ejected, 0U);
}

/// Keeps exchanges until the test answers them.
class kept_exchanges {
  public:
    [[nodiscard]] handler keeper() {
        return [this](exchange one) {
            const std::lock_guard lock(mutex_);
            all_.push_back(std::move(one));
        };
    }
    [[nodiscard]] bool has(std::size_t count) {
        return eventually(30s, [&] {
            const std::lock_guard lock(mutex_);
            return all_.size() >= count;
        });
    }
    void answer_all() {
        const std::lock_guard lock(mutex_);
        for (exchange& each : all_) echo_back(std::move(each));
        all_.clear();
    }

  private:
    std::mutex mutex_;
    std::vector<exchange> all_;
};

TEST_P(pools, calls_of_a_lost_channel_end) {
    kept_exchanges held;
    std::optional<server> there(serve(place("completions"), held.keeper()));
    channel_pool pool = pool_to(where(*there));
    auto call = pool.submit(bytes_of("x"));
    ASSERT_TRUE(call) << call.error().message;
    ASSERT_TRUE(held.has(1));
    there.reset();
    EXPECT_NE(call->wait().code(), status::ok);
    held.answer_all();
}

TEST_P(pools, close_waits_for_calls_and_then_takes_none) {
    kept_exchanges held;
    const server there = serve(place("close"), held.keeper());
    channel_pool pool = pool_to(where(there));
    std::atomic<bool> good{false};
    std::thread user([&] { good = pool.call(bytes_of("still good")).ok(); });
    ASSERT_TRUE(held.has(1));
    std::thread closer([&] { EXPECT_EQ(pool.close(patience(10s)), status::ok); });
    EXPECT_TRUE(eventually(30s, [&] { return pool.submit({}).code() == status::closed; }));
    held.answer_all();
    closer.join();
    user.join();
    EXPECT_TRUE(good);
    EXPECT_EQ(pool.call({}).code(), status::closed);
    EXPECT_EQ(pool.statistics().channels, 0U);
}

TEST_P(pools, close_ends_calls_at_its_deadline_and_responses_stay) {
    kept_exchanges held;
    const server there = serve(place("deadline"), [&](exchange one) {
        one.request().empty() ? held.keeper()(std::move(one)) : echo_back(std::move(one));
    });
    channel_pool pool = pool_to(where(there));
    auto kept = pool.call(bytes_of("mine"));
    ASSERT_TRUE(kept) << kept.error().message;
    std::atomic<status> ended{status::ok};
    std::thread user([&] { ended = pool.call({}).code(); });
    ASSERT_TRUE(held.has(1));
    EXPECT_EQ(pool.close(20ms), status::timed_out);
    user.join();
    EXPECT_EQ(ended, status::closed);
    EXPECT_EQ(text_of(kept->response), "mine");
    EXPECT_EQ(pool.close(0ns), status::ok);
    held.answer_all();
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

/// More threads than channels, and in each channel more than slots.
class crowds : public pools {
  protected:
    void expect_answers(std::size_t threads, const channel_options& options, const pool_options& limits) {
        const server there = serve(place("crowd"), echo_back, 2);
        channel_pool pool = channel_pool::open(ctx, where(there), options, limits).value();
        std::atomic<int> wrong{0};
        meeting all(threads);
        meeting seated(threads);  // a thread that ended before others began would leave its channel to them
        in_threads(threads, [&](std::size_t thread) {
            all.come();
            for (int i = 0; i < effort(20); ++i) {
                const std::string text = std::to_string(thread) + " " + std::to_string(i);
                wrong += ask(pool, text) != text;
                if (i == 0) seated.come();
            }
        });
        EXPECT_EQ(wrong, 0);
        EXPECT_EQ(pool.statistics().made, limits.max_channels);
    }
};

TEST_P(crowds, of_200_threads_get_answers_with_default_options) {
    channel_options options;
    options.connect_timeout = options.call_timeout = patience(20s);
    options.peer_timeout = patience(2s);
    options.security.insecure = true;
    expect_answers(200, options, {});
}

TEST_P(crowds, share_two_channels) {
    channel_options options = client_options();
    options.call_timeout = patience(20s);
    expect_answers(32, options, {.max_channels = 2});
}

INSTANTIATE_TEST_SUITE_P(over, crowds, ::testing::Values("tcp", "shm"), [](const auto& row) { return row.param; });

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
    EXPECT_EQ(code("tcp://a:1", {.dns_refresh = 0s}), status::invalid_argument);
    EXPECT_EQ(code("tcp://a:1?insecure=true&reconnect=true"), status::ok) << "the pool connects again anyway";
    EXPECT_EQ(code("tcp://a:1,b:1?insecure=true&balance=sticky"), status::ok);
    EXPECT_EQ(code("tcp://a:1,b:1?insecure=true&balance=random"), status::invalid_argument);
    EXPECT_EQ(channel::connect(ctx, "tcp://a:1?insecure=true&balance=sticky").code(), status::invalid_argument);
}

}  // namespace
}  // namespace accel::tests
