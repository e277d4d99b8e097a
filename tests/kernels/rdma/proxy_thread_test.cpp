// SPDX-License-Identifier: Apache-2.0
// Who serves whom, and when a proxy's threads sleep: with rings that only count their turns.
#include "core/thread_times.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "patience.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::verbs {
namespace {

using namespace std::chrono_literals;
using tests::eventually;
using tests::patience;

/// Rings that say whether they have something to do.
class counted_rings final : public gpu::served_rings {
  public:
    explicit counted_rings(bool busy = false) : busy_(busy) {}
    ~counted_rings() override { ::close(event_fd_); }
    counted_rings(const counted_rings&) = delete;
    counted_rings& operator=(const counted_rings&) = delete;

    bool progress() noexcept override {
        if (inside_.exchange(true)) ++at_once_;
        by_ = ::gettid();
        ++turns_;
        while (stuck_) {
            halted_ = true;
            std::this_thread::sleep_for(1ms);
        }
        halted_ = false;
        if (cost_ > 0ns) {
            const auto until = std::chrono::steady_clock::now() + cost_;
            while (std::chrono::steady_clock::now() < until) continue;
        }
        inside_ = false;
        return busy_;
    }
    [[nodiscard]] bool fall_asleep() noexcept override { return !busy_; }
    [[nodiscard]] int news_fd() const noexcept override { return -1; }
    [[nodiscard]] int event_fd() const noexcept override { return event_fd_; }
    void wake_up(bool /*news*/, bool events) noexcept override {
        std::uint64_t count = 0;
        if (events && ::read(event_fd_, &count, sizeof count) > 0) ++woken_;
    }
    void signal() const {
        const std::uint64_t one = 1;
        ASSERT_GT(::write(event_fd_, &one, sizeof one), 0);
    }
    /// From here on their turn does not end.
    void get_stuck() {
        stuck_ = true;
        ASSERT_TRUE(eventually(patience(5s), [&] { return halted_.load(); }));
    }
    /// They have been served again, twice.
    [[nodiscard]] bool are_served() const {
        const std::uint64_t before = turns_;
        return eventually(
            patience(5s), [&] { return turns_ >= before + 2; }, 50us);
    }

    std::atomic<bool> busy_;
    std::atomic<bool> stuck_{false};
    std::chrono::nanoseconds cost_{};  ///< of a turn
    std::atomic<bool> inside_{false};
    std::atomic<bool> halted_{false};  ///< in a turn that waits for `stuck_` to end
    std::atomic<std::uint64_t> turns_{0};
    std::atomic<std::uint32_t> at_once_{0};  ///< turns that began before another had ended
    std::atomic<std::uint32_t> woken_{0};
    std::atomic<pid_t> by_{0};

  private:
    int event_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

std::unique_ptr<gpu::proxy_thread> started(const gpu::proxy_pace& pace = {}) {
    auto made = gpu::proxy_thread::start(pace);
    if (!made) throw std::runtime_error(made.error().message);
    return std::move(*made);
}
core::nanoseconds processor_time(pid_t thread) {
    const core::thread_times used = core::times_of(thread);
    return used.user + used.kernel;
}

class verbs_proxy_thread : public ::testing::Test {};

TEST_F(verbs_proxy_thread, each_ring_gets_its_turns_while_others_are_busy) {
    counted_rings busy(true);
    counted_rings heavy(true);
    heavy.cost_ = 200us;
    counted_rings quiet;
    const auto thread = started();
    for (counted_rings* each : {&busy, &heavy, &quiet}) thread->add(*each);
    ASSERT_TRUE(quiet.are_served());
    // Time in which busy rings are counted lies within that of heavy ones, and that within that of quiet ones: however
    // long this thread stops between two lines, the bounds hold.
    const std::uint64_t quiet_before = quiet.turns_;
    const std::uint64_t heavy_before = heavy.turns_;
    const std::uint64_t busy_before = busy.turns_;
    ASSERT_TRUE(eventually(patience(10s), [&] { return heavy.turns_ - heavy_before >= 100; }));
    const std::uint64_t busy_turns = busy.turns_ - busy_before;
    const std::uint64_t heavy_turns = heavy.turns_ - heavy_before;
    const std::uint64_t quiet_turns = quiet.turns_ - quiet_before;
    for (counted_rings* each : {&quiet, &busy, &heavy}) ASSERT_TRUE(thread->remove(*each));
    EXPECT_GE(quiet_turns + heavy_turns / 4, heavy_turns);
    EXPECT_LE(busy_turns, heavy_turns + heavy_turns / 4);
}

TEST_F(verbs_proxy_thread, an_event_of_any_ring_wakes_the_thread) {
    counted_rings one;
    counted_rings other;
    const auto thread = started({0ns, 2 * tests::until_hung(), 2 * tests::until_hung()});
    thread->add(one);
    thread->add(other);
    ASSERT_TRUE(eventually(patience(5s), [&] { return one.turns_ > 0 && other.turns_ > 0; }));
    for (std::uint32_t round = 1; round <= 10; ++round) {
        counted_rings& rings = round % 2 == 0 ? one : other;
        const std::uint32_t before = rings.woken_;
        rings.signal();
        ASSERT_TRUE(eventually(patience(10s), [&] { return rings.woken_ > before; }));
    }
    EXPECT_EQ(one.woken_, 5U);
    EXPECT_EQ(other.woken_, 5U);
}

TEST_F(verbs_proxy_thread, a_napping_thread_takes_new_rings_and_gives_up_old_ones) {
    const auto thread = started({0ns, 2 * tests::until_hung(), 2 * tests::until_hung()});
    std::this_thread::sleep_for(5ms);
    counted_rings rings;
    thread->add(rings);
    EXPECT_TRUE(eventually(patience(5s), [&] { return rings.turns_ > 0; }));
    std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(thread->remove(rings));
}

/// 16 naps of a millisecond each would fill a 64th of a second; the bound leaves room for slow machines.
TEST_F(verbs_proxy_thread, a_thread_with_silent_rings_uses_little_processor_time) {
    std::vector<std::unique_ptr<counted_rings>> all;
    const auto thread = started();
    for (int i = 0; i < 8; ++i) thread->add(*all.emplace_back(std::make_unique<counted_rings>()));
    std::this_thread::sleep_for(100ms);
    const core::nanoseconds before = processor_time(thread->id());
    const std::uint64_t turns_before = all[0]->turns_;
    std::this_thread::sleep_for(1s);
    EXPECT_LT(processor_time(thread->id()) - before, std::min<core::nanoseconds>(patience(250ms), 900ms));
    EXPECT_LT(all[0]->turns_ - turns_before, 5000U);
    for (const auto& each : all) ASSERT_TRUE(thread->remove(*each));
}

TEST_F(verbs_proxy_thread, a_wait_for_an_endless_turn_ends_at_its_timeout) {
    counted_rings stuck;
    const auto thread = started();
    thread->add(stuck);
    ASSERT_TRUE(stuck.are_served());
    ASSERT_NO_FATAL_FAILURE(stuck.get_stuck());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(thread->remove(stuck, 20ms));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, tests::until_hung());
    stuck.stuck_ = false;
    EXPECT_TRUE(thread->remove(stuck));
    const std::uint64_t after = stuck.turns_;
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(stuck.turns_, after);
}

class verbs_proxy_threads : public ::testing::Test {
  protected:
    ~verbs_proxy_threads() override {
        for (const auto& each : all_) (void)threads_.remove(*each);
    }
    counted_rings& add(std::uint32_t threads, bool busy = false) {
        counted_rings& made = *all_.emplace_back(std::make_unique<counted_rings>(busy));
        const result<void> added = threads_.add(made, threads);
        EXPECT_TRUE(added.ok());
        return made;
    }
    void remove(counted_rings& which) {
        EXPECT_TRUE(threads_.remove(which));
        std::erase_if(all_, [&](const auto& each) { return each.get() == &which; });
    }
    /// How many rings each thread has, from the fewest on.
    [[nodiscard]] std::vector<std::size_t> shares() const {
        std::map<pid_t, std::size_t> by_thread;
        for (const auto& each : all_) {
            EXPECT_TRUE(each->are_served());
            ++by_thread[each->by_];
        }
        std::vector<std::size_t> out;
        for (const auto& [thread, count] : by_thread) out.push_back(count);
        std::ranges::sort(out);
        return out;
    }
    gpu::proxy_threads threads_{{}, patience(10s)};  // a move may take long on a busy machine
    std::vector<std::unique_ptr<counted_rings>> all_;
};

using sizes = std::vector<std::size_t>;

/// As many threads as the service that asks for most wants, as long as each has a service; and none has two more than
/// another.
TEST_F(verbs_proxy_threads, services_that_come_and_go_share_their_threads_evenly) {
    std::mt19937 random(20261123);
    std::map<const counted_rings*, std::uint32_t> wanted;
    const auto expect_even = [&] {
        std::uint32_t most = 0;
        for (const auto& [rings, threads] : wanted) most = std::max(most, threads);
        const std::size_t threads = std::min<std::size_t>(most, wanted.size());
        ASSERT_EQ(threads_.size(), threads);
        sizes expected(threads, threads == 0 ? 0 : wanted.size() / threads);
        for (std::size_t i = 0; i < (threads == 0 ? 0 : wanted.size() % threads); ++i) ++expected[threads - 1 - i];
        ASSERT_EQ(shares(), expected);
    };
    for (int round = 0; round < tests::effort(200) && !HasFatalFailure(); ++round) {
        SCOPED_TRACE(round);
        const bool goes = all_.size() > 8 || (!all_.empty() && random() % 2 == 0);
        if (goes) {
            counted_rings& leaving = *all_[random() % all_.size()];
            wanted.erase(&leaving);
            EXPECT_EQ(leaving.at_once_, 0U) << "two threads have served it at once";
            remove(leaving);
        } else {
            const auto threads = static_cast<std::uint32_t>(1 + random() % 5);
            wanted[&add(threads, random() % 4 == 0)] = threads;
        }
        if (round % 4 == 0) expect_even();
    }
    while (!all_.empty() && !HasFatalFailure()) {
        wanted.erase(all_.back().get());
        EXPECT_EQ(all_.back()->at_once_, 0U);
        remove(*all_.back());
        expect_even();
    }
    EXPECT_EQ(threads_.size(), 0U);
}

/// The ones that are stuck stay with their thread; it alone waits for them.
TEST_F(verbs_proxy_threads, a_stuck_service_holds_only_its_own_thread) {
    counted_rings& stuck = add(2);
    counted_rings& sound = add(2);
    ASSERT_EQ(shares(), (sizes{1, 1}));
    ASSERT_NO_FATAL_FAILURE(stuck.get_stuck());
    EXPECT_TRUE(sound.are_served());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(threads_.remove(stuck, 20ms));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, tests::until_hung());
    EXPECT_TRUE(sound.are_served());
    stuck.stuck_ = false;
    EXPECT_TRUE(threads_.remove(stuck));
    EXPECT_EQ(stuck.at_once_, 0U);
}

TEST_F(verbs_proxy_threads, removing_a_stuck_service_does_not_delay_others) {
    counted_rings& stuck = add(2);
    counted_rings& sound = add(2);
    ASSERT_EQ(shares(), (sizes{1, 1}));
    ASSERT_NO_FATAL_FAILURE(stuck.get_stuck());
    std::atomic<bool> returned{false};
    std::thread remover([&] {
        EXPECT_TRUE(threads_.remove(stuck, patience(60s)));
        returned = true;
    });
    std::this_thread::sleep_for(50ms);  // it waits by now
    (void)threads_.cpu_time(sound);
    EXPECT_EQ(threads_.size(), 2U);
    remove(add(2));
    EXPECT_TRUE(sound.are_served());
    EXPECT_FALSE(returned) << "they have waited for it";
    stuck.stuck_ = false;
    remover.join();
    EXPECT_EQ(threads_.size(), 1U);
}

/// A service that could not be removed is its owner's to destroy or to leave behind: it must never be served again.
TEST_F(verbs_proxy_threads, a_removed_service_is_not_served_when_its_thread_returns) {
    counted_rings& stuck = add(2);
    counted_rings& sound = add(2);
    ASSERT_EQ(shares(), (sizes{1, 1}));
    ASSERT_NO_FATAL_FAILURE(stuck.get_stuck());
    ASSERT_FALSE(threads_.remove(stuck, 20ms));
    const std::uint64_t turns = stuck.turns_;
    for (int round = 0; round < 3; ++round) {  // others come and go, and threads with them
        counted_rings& one = add(3);
        counted_rings& other = add(3);
        remove(one);
        remove(other);
    }
    stuck.stuck_ = false;
    EXPECT_TRUE(eventually(patience(5s), [&] { return !stuck.inside_; }));
    remove(add(3));
    EXPECT_TRUE(sound.are_served());
    EXPECT_EQ(stuck.turns_, turns);
    EXPECT_TRUE(threads_.remove(stuck));
}

TEST_F(verbs_proxy_threads, processor_time_of_a_service_never_falls) {
    counted_rings& rings = add(3, true);
    core::nanoseconds last{};
    for (int round = 0; round < 20; ++round) {
        add(3, true);
        std::this_thread::sleep_for(5ms);
        if (round % 3 == 2) remove(*all_.back());
        if (round % 5 == 4) remove(*all_[1]);
        const core::nanoseconds now = threads_.cpu_time(rings);
        EXPECT_GE(now, last) << round;
        last = now;
    }
    EXPECT_TRUE(eventually(patience(10s), [&] { return threads_.cpu_time(rings) > 0ns; }));
    EXPECT_EQ(threads_.cpu_time(counted_rings{}), 0ns);
}

}  // namespace
}  // namespace accel::verbs
