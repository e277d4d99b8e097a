// SPDX-License-Identifier: Apache-2.0
// A pool of channels: a channel for each thread, hosts that take turns and are left out, and how it closes.
#include "client_rig.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
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

/// A thread that does what the test says, one thing after another.
class told_thread {
  public:
    told_thread() : thread_([this] { run(); }) {}
    ~told_thread() {
        tell([this] { use.reset(); });
        tell({});
        thread_.join();
    }
    told_thread(const told_thread&) = delete;
    told_thread& operator=(const told_thread&) = delete;
    void tell(std::function<void()> work) {
        std::unique_lock lock(mutex_);
        work_ = std::move(work);
        told_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !told_; });
    }
    std::optional<pooled_channel> use;
    const channel* seat = nullptr;  ///< its channel
    bool unread = false;            ///< which has a call that was begun

  private:
    void run() {
        std::unique_lock lock(mutex_);
        for (bool goes_on = true; goes_on;) {
            changed_.wait(lock, [this] { return told_; });
            goes_on = static_cast<bool>(work_);
            if (goes_on) work_();
            told_ = false;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> work_;
    bool told_ = false;
    std::thread thread_;
};

/// Threads in random order. Beside them: which channel is whose, and which waits for the next thread.
class pool_sequence {
  public:
    pool_sequence(channel_pool& pool, std::uint32_t most) : pool_(pool), most_(most), threads_(4) {
        for (auto& each : threads_) each = std::make_unique<told_thread>();
    }
    void step() {
        std::unique_ptr<told_thread>& one = threads_.at(random_() % threads_.size());
        switch (random_() % 8) {
            case 0:
                put_back(*one);
                one = std::make_unique<told_thread>();  // the other ends
                break;
            case 1:
                one->tell([&] { leave(*one); });
                break;
            case 2:
                one->tell([&] { one->use.reset(); });
                break;
            case 3:
                one->tell([&] { begin_call(*one); });
                break;
            case 4:
            case 5:
                one->tell([&] { take(*one); });
                break;
            default:
                one->tell([&] { call(*one); });
        }
        const pool_statistics seen = pool_.statistics();
        EXPECT_EQ(seen.channels, free_.size() + used_.size());
        EXPECT_EQ(seen.made, made_);
        EXPECT_EQ(seen.refused, refused_);
    }

    int left_unread = 0;  ///< channels

  private:
    /// What a thread gets that needs a channel: its own, a free one, a new one, or none.
    [[nodiscard]] bool gets(const told_thread& one) {
        if (one.seat != nullptr) return true;
        if (!free_.empty() || used_.size() < most_) return true;
        ++refused_;
        return false;
    }
    void sit(told_thread& one, const channel& on) {
        if (one.seat != nullptr) {
            EXPECT_EQ(one.seat, &on) << "a thread keeps its channel";
            return;
        }
        EXPECT_TRUE(used_.insert(&on).second) << "two threads have one channel";
        const bool waited = free_.erase(&on) == 1;
        EXPECT_TRUE(waited || free_.empty()) << "one was made, though another was free";
        made_ += waited ? 0 : 1;
        one.seat = &on;
    }
    void take(told_thread& one) {
        const bool expected = gets(one);
        auto use = pool_.take();
        ASSERT_EQ(use.code(), expected ? status::ok : status::overloaded);
        if (!use) {
            EXPECT_NE(use.error().message.find("max_channels"), std::string::npos) << use.error().message;
            return;
        }
        sit(one, **use);
        one.use.emplace(std::move(*use));
    }
    void call(told_thread& one) {
        const bool expected = gets(one);
        const std::string text = std::to_string(random_());
        auto answer = pool_.call(bytes_of(text));
        ASSERT_EQ(answer.code(), expected ? status::ok : status::overloaded);
        if (!answer) return;
        EXPECT_EQ(text_of((*answer)->bytes()), text);
        auto use = pool_.take();
        ASSERT_TRUE(use);
        sit(one, **use);
    }
    /// So that its channel is no good for another thread.
    void begin_call(told_thread& one) {
        call_view begun;
        if (!one.use) take(one);
        if (!one.use || std::exchange(one.unread, true)) return;
        EXPECT_EQ((*one.use)->begin(begun), status::ok);
    }
    void leave(told_thread& one) {
        EXPECT_EQ(pool_.leave(), one.use ? status::invalid_state : status::ok);
        if (!one.use) put_back(one);
    }
    void put_back(told_thread& one) {
        if (one.seat == nullptr) return;
        used_.erase(one.seat);
        if (one.unread)
            ++left_unread;
        else
            free_.insert(one.seat);
        one.seat = nullptr;
        one.unread = false;
    }

    channel_pool& pool_;
    std::size_t most_;
    std::mt19937 random_{1};
    std::vector<std::unique_ptr<told_thread>> threads_;
    std::set<const channel*> free_;
    std::set<const channel*> used_;
    std::uint64_t made_ = 0;
    std::uint64_t refused_ = 0;
};

TEST_P(pools, each_thread_has_a_channel_of_its_own_and_leaves_it_to_the_next_unless_it_is_in_use_or_unread) {
    const server there = serve(place("threads"));
    channel_pool pool = pool_to(where(there), {.max_channels = 2});
    EXPECT_EQ(pool.statistics().channels, 0U) << "nothing is made before the first call";
    EXPECT_EQ(pool.leave(), status::ok) << "this thread has none";
    pool_sequence random(pool, 2);
    for (int i = 0; i < 200; ++i) {
        random.step();
        if (HasFailure()) FAIL() << "step " << i;
    }
    EXPECT_GT(random.left_unread, 5);
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
