// SPDX-License-Identifier: Apache-2.0
// Several services by the same threads; this program's threads play their kernels.
#include "core/thread_times.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "rdma/proxy_rig.hpp"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>

namespace accel::verbs {
namespace {

/// A kernel that posts without end, and a peer that takes what arrives.
class flooding_kernel {
  public:
    explicit flooding_kernel(proxied_service& of)
        : thread_([this, &of] {
              const auto from = of.range(0, 64);
              while (!over_) {
                  for (const auto& each : of.sessions_) {
                      while (proxy::post(each->ref(), of.write(from, 4096, 0, false)) == status::ok) continue;
                      arrived_ += of.arrivals_at(*each).size();
                  }
                  std::this_thread::yield();
              }
          }) {}
    ~flooding_kernel() {
        over_ = true;
        thread_.join();
    }
    flooding_kernel(const flooding_kernel&) = delete;
    flooding_kernel& operator=(const flooding_kernel&) = delete;
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }

  private:
    std::atomic<bool> over_{false};
    std::atomic<std::uint64_t> arrived_{0};
    std::thread thread_;
};

class verbs_proxy_share : public ::testing::Test {
  protected:
    ~verbs_proxy_share() override {
        for (const auto& each : services_) EXPECT_TRUE(threads_.remove(*each->engine_));
    }
    /// A service with one session, or more, by one of `threads` threads.
    proxied_service& add(std::uint32_t threads, std::uint32_t sessions = 1, std::uint32_t completions = 256) {
        proxied_service& made = *services_.emplace_back(std::make_unique<proxied_service>());
        gpu::proxy_options options;
        options.receives = 64;
        options.sends = 2048;
        options.round = 128;
        made.make_engine(options, completions);
        must(threads_.add(*made.engine_, threads));
        for (std::uint32_t i = 0; i < sessions; ++i) made.connect();
        return made;
    }
    void remove(proxied_service& which) {
        EXPECT_TRUE(threads_.remove(*which.engine_));
        std::erase_if(services_, [&](const auto& each) { return each.get() == &which; });
    }
    static void expect_turns(proxied_service& of, int count) {
        for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i)
            of.expect_sound(*of.sessions_.front(), static_cast<std::uint32_t>(i));
    }
    /// Each service has a kernel of its own.
    void expect_turns_of_all(int count) {
        std::vector<std::thread> kernels;
        for (const auto& each : services_) kernels.emplace_back([&each, count] { expect_turns(*each, count); });
        for (std::thread& each : kernels) each.join();
    }
    gpu::proxy_threads threads_;
    std::vector<std::unique_ptr<proxied_service>> services_;
};

TEST_F(verbs_proxy_share, threads_serve_more_services_than_they_are) {
    for (const std::uint32_t threads : {1U, 3U}) {
        for (std::uint32_t i = 0; i < threads + 2; ++i) add(threads);
        EXPECT_EQ(threads_.size(), threads);
        expect_turns_of_all(tests::effort(300));
        while (!services_.empty()) remove(*services_.back());
    }
}

TEST_F(verbs_proxy_share, services_come_and_go_while_others_work) {
    constexpr std::uint32_t threads = 2;
    proxied_service& stays = add(threads);
    proxied_service& loaded = add(threads, 2);
    const flooding_kernel kernel(loaded);
    std::atomic<bool> over{false};
    std::thread caller([&] {
        while (!over) expect_turns(stays, 10);
    });
    for (int round = 0; round < tests::effort(30) && !HasFailure(); ++round) {
        proxied_service& comes = add(threads);
        expect_turns(comes, 5);
        std::optional<flooding_kernel> leaving;
        if (round % 2 == 0) leaving.emplace(comes);
        const auto removing = std::chrono::steady_clock::now();
        ASSERT_TRUE(threads_.remove(*comes.engine_));
        EXPECT_LT(std::chrono::steady_clock::now() - removing, tests::until_hung());
        const std::uint32_t released = comes.sessions_[0]->released_now();
        std::this_thread::sleep_for(1ms);
        EXPECT_EQ(comes.sessions_[0]->released_now(), released) << "it is served no more";
        leaving.reset();
        remove(comes);
    }
    over = true;
    caller.join();
    EXPECT_GT(kernel.arrived(), 0U);
}

/// Its kernel takes no completion and posts on; its other ring says what makes no sense.
TEST_F(verbs_proxy_share, hostile_service_harms_no_other) {
    proxied_service& sound = add(1);
    proxied_service& hostile = add(1, 2, 2);
    const auto from = hostile.range(0, 64);
    proxy::send_queue_ref wrong = hostile.sessions_[1]->ref();
    wrong.queue_pair ^= 1;
    std::atomic<bool> over{false};
    std::thread kernel([&] {
        while (!over) {
            (void)proxy::post(hostile.sessions_[0]->ref(), hostile.write(from, 4096, 0, true));
            (void)proxy::post(wrong, hostile.write(from, 4096, 0, true));
            (void)proxied_service::arrivals_at(*hostile.sessions_[0]);
        }
    });
    expect_turns(sound, tests::effort(300));
    over = true;
    kernel.join();
    // Full for good, it keeps the thread from no nap.
    const core::nanoseconds before = threads_.cpu_time(*sound.engine_);
    std::this_thread::sleep_for(1s);
    EXPECT_LT(threads_.cpu_time(*sound.engine_) - before, std::min<core::nanoseconds>(patience(400ms), 900ms));
    expect_turns(sound, 5);
}

TEST_F(verbs_proxy_share, a_failed_queue_ends_only_its_own_service) {
    proxied_service& sound = add(1);
    proxied_service& broken = add(1);
    broken.engine_->on_async_event(IBV_EVENT_CQ_ERR);
    const auto told = broken.next();
    ASSERT_TRUE(told);
    EXPECT_EQ(told->vendor_syndrome, static_cast<std::uint8_t>(proxy::refusal::lost));
    expect_turns(sound, 50);
    remove(broken);
    expect_turns(sound, 50);
}

/// Eight rings that are always full, and a service with one: the lone one's turn comes after 128 descriptors of theirs.
TEST_F(verbs_proxy_share, a_ring_beside_eight_full_ones_gets_its_turns) {
    proxied_service& lone = add(1);
    proxied_service& many = add(1, 8);
    const flooding_kernel kernel(many);
    ASSERT_TRUE(eventually(patience(5s), [&] { return kernel.arrived() > 1000; }));
    const std::uint64_t before = kernel.arrived();
    const int calls = tests::effort(200);
    expect_turns(lone, calls);
    const std::uint64_t meanwhile = kernel.arrived() - before;
    EXPECT_TRUE(eventually(patience(5s), [&] { return kernel.arrived() > before; })) << "the others have no turns";
    std::cout << meanwhile / static_cast<std::uint64_t>(calls) << " descriptors of the others for each call\n";
}

TEST_F(verbs_proxy_share, a_turn_posts_a_limited_number_of_descriptors) {
    proxied_service service;
    gpu::proxy_options options;
    options.batch = 4;
    options.round = 8;
    service.make_engine(options);
    for (int i = 0; i < 4; ++i) service.connect();
    service.engine_->progress();
    const auto from = service.range(0, 64);
    for (const auto& each : service.sessions_)
        for (std::uint32_t i = 0; i < 12; ++i)
            ASSERT_EQ(proxy::post(each->ref(), service.write(from, 4096, i, false)), status::ok);
    std::array<std::size_t, 4> arrived{};
    const auto count_all = [&] {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < arrived.size(); ++i)
            sum += arrived[i] += proxied_service::arrivals_at(*service.sessions_[i]).size();
        return sum;
    };
    for (std::size_t turn = 1; turn <= 6; ++turn) {
        service.engine_->progress();
        EXPECT_TRUE(eventually(patience(5s), [&] { return count_all() >= 8 * turn; }));
        std::this_thread::sleep_for(1ms);
        EXPECT_EQ(count_all(), 8 * turn);
        if (turn % 2 != 0) continue;
        for (const std::size_t each : arrived) EXPECT_EQ(each, 2 * turn) << "after " << turn << " turns";
    }
}

}  // namespace
}  // namespace accel::verbs
