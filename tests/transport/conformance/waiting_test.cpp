// SPDX-License-Identifier: Apache-2.0
// Ways to wait, on both ends: poll modes, an epoll loop of one's own, workers or none.
#include "rig.hpp"

#include <atomic>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace accel::tests {
namespace {

class waiting : public on_every_backend {};

TEST_P(waiting, wait_returns_at_its_timeout) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    for (const poll_mode mode : {poll_mode::busy, poll_mode::adaptive, poll_mode::block}) {
        channel_options options = calm_client();
        options.poll = mode;
        auto client = r.connect(options);
        client.send_seed(10, 1);
        completion none;
        EXPECT_EQ(client.wait({&none, 1}, 0ns), 0U);
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(client.wait({&none, 1}, 30ms), 0U);
        EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
        EXPECT_LT(std::chrono::steady_clock::now() - start, 30ms + patience(10s));
        echo(held.take());
        EXPECT_EQ(client.finish(status::ok), 1U);
    }
}

TEST_P(waiting, every_pair_of_poll_modes_delivers_calls) {
    for (const poll_mode server_mode : {poll_mode::busy, poll_mode::adaptive, poll_mode::block}) {
        server_options at_server = calm_server();
        at_server.poll = server_mode;
        rig r(GetParam(), echo, at_server);
        for (const poll_mode mode : {poll_mode::busy, poll_mode::adaptive, poll_mode::block}) {
            channel_options options = calm_client();
            options.poll = mode;
            auto client = r.connect(options);
            for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(200)); ++i) {
                if (i % 50 == 0) std::this_thread::sleep_for(1ms);  // let everyone fall asleep
                client.send_seed(100, i);
                if (i % 3 == 0) client.send_seed(60'000, i);
                ASSERT_EQ(client.finish(status::ok), i % 3 == 0 ? 2U : 1U);
            }
        }
    }
}

TEST_P(waiting, a_sleeping_wait_uses_no_cpu) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    client.send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(1));
    const auto cpu = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return std::chrono::seconds{usage.ru_utime.tv_sec + usage.ru_stime.tv_sec} +
               std::chrono::microseconds{usage.ru_utime.tv_usec + usage.ru_stime.tv_usec};
    };
    const auto before = cpu();
    completion none;
    EXPECT_EQ(client.wait({&none, 1}, 400ms), 0U);
    EXPECT_LT(cpu() - before, patience(100ms)) << "neither the client nor the server may spin while idle";
    echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 1U);
}

/// Serves a channel from an epoll loop as an application would: poll until 0, arm, sleep.
class epoll_loop {
  public:
    explicit epoll_loop(checked_channel& client) : client_(client), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        epoll_event interest{};
        interest.events = EPOLLIN;
        EXPECT_EQ(epoll_ctl(epoll_, EPOLL_CTL_ADD, client->event_fd(), &interest), 0);
    }
    ~epoll_loop() { close(epoll_); }

    /// Runs until `count` completions were taken; false if it slept longer than `bound` at a time.
    bool run(std::size_t count, nanoseconds bound, std::vector<completion>& taken) {
        while (count > 0) {
            completion out[4];
            const std::size_t got = client_.poll(out);
            for (std::size_t i = 0; i < got; ++i, --count) {
                taken.push_back(out[i]);
                EXPECT_EQ(client_.release(out[i].id), status::ok);
            }
            if (got > 0 || !client_->arm()) continue;
            epoll_event event{};
            const int ready = epoll_wait(epoll_, &event, 1, static_cast<int>(bound / 1ms));
            if (ready == 0) return false;
        }
        return true;
    }

  private:
    checked_channel& client_;
    int epoll_;
};

TEST_P(waiting, an_epoll_loop_loses_no_wake_up) {
    rig r(GetParam());
    auto client = r.connect();
    epoll_loop loop(client);
    std::vector<completion> taken;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(300)); ++i) {
        if (i % 20 == 0) std::this_thread::sleep_for(2ms);
        const std::size_t batch = 1 + i % 8;
        for (std::size_t n = 0; n < batch; ++n) client.send_seed(mix(i + n) % 60'000, i);
        ASSERT_TRUE(loop.run(batch, until_hung(), taken)) << "a wake-up was lost in round " << i;
    }
    for (const completion& c : taken) ASSERT_EQ(c.status, status::ok);
}

TEST_P(waiting, a_descriptor_that_is_taken_after_the_channel_was_armed_wakes) {
    rig r(GetParam());
    auto client = r.connect();
    client.send_seed(10, 1);
    completion done;
    while (client.poll({&done, 1}) == 0) {
        if (!client->arm()) continue;
        pollfd events{client->event_fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&events, 1, static_cast<int>(until_hung() / 1ms)), 1) << "a wake-up was lost";
    }
    EXPECT_TRUE(matches(done.response, 1));
    EXPECT_EQ(client.release(done.id), status::ok);
}

TEST_P(waiting, an_epoll_loop_wakes_for_a_deadline) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    epoll_loop loop(client);
    std::vector<completion> taken;
    const auto start = std::chrono::steady_clock::now();
    client.send_seed(10, 1, {.timeout = 100ms});
    ASSERT_TRUE(loop.run(1, until_hung(), taken));
    EXPECT_EQ(taken.at(0).status, status::timed_out);
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(10s));
    (void)reaches_its_handler(r, held);
    held.clear();
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(waiting, an_epoll_loop_wakes_for_the_end_of_the_server) {
    held_exchanges held;
    server_options options = calm_server();
    options.drain_timeout = 10ms;
    rig r(GetParam(), held.keeper(), options);
    auto client = r.connect();
    epoll_loop loop(client);
    client.send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(1));
    std::thread stopper([&] {
        std::this_thread::sleep_for(20ms);
        r.served().stop();
    });
    std::vector<completion> taken;
    ASSERT_TRUE(loop.run(1, until_hung(), taken));
    EXPECT_TRUE(taken.at(0).status == status::peer_lost || taken.at(0).status == status::closed);
    stopper.join();
}

TEST_P(waiting, an_idle_channel_stays_asleep) {
    rig r(GetParam());
    auto client = r.connect();
    client.send_seed(10, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    int wakes = 0;
    const auto end = std::chrono::steady_clock::now() + 300ms;
    while (std::chrono::steady_clock::now() < end) {
        completion none;
        EXPECT_EQ(client.poll({&none, 1}), 0U);
        if (!client->arm()) continue;
        pollfd fd{.fd = client->event_fd(), .events = POLLIN, .revents = 0};
        if (::poll(&fd, 1, 100) > 0) ++wakes;
    }
    EXPECT_LT(wakes, 20) << "its descriptor is readable while there is nothing to do";
}

TEST_P(waiting, workers_zero_is_driven_by_the_application) {
    server_options options = calm_server();
    options.workers = 0;
    rig r(GetParam(), echo, options);
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> events{0};
    std::thread application([&] {
        while (!stop) {
            const std::size_t count = r.served().poll();
            events += count;
            if (count == 0) std::this_thread::yield();
        }
    });
    {
        auto client = r.connect();
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(300)); ++i) {
            client.send_seed(mix(i) % 60'000, i);
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            ASSERT_TRUE(matches(c.response, i));
            ASSERT_EQ(client.release(c.id), status::ok);
        }
    }
    EXPECT_GT(events, 0U);
    EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 0; }));
    stop = true;
    application.join();
}

TEST_P(waiting, two_workers_share_the_sessions) {
    server_options options = calm_server();
    options.workers = 2;
    std::atomic<unsigned> started{0};
    rig r(
        GetParam(),
        [&](exchange one) {
            // The first two are only answered when both are being handled at the same time.
            ++started;
            (void)eventually(
                until_hung(), [&] { return started >= 2; }, 100us);
            EXPECT_GE(started, 2U);
            echo(std::move(one));
        },
        options);
    auto first = r.connect();
    auto second = r.connect();
    first.send_seed(10, 1);
    second.send_seed(10, 2);
    EXPECT_EQ(first.finish(status::ok), 1U);
    EXPECT_EQ(second.finish(status::ok), 1U);
}

ACCEL_INSTANTIATE(waiting, all_backends);

}  // namespace
}  // namespace accel::tests
