// SPDX-License-Identifier: Apache-2.0
// Ways to wait, on both ends: poll modes, an epoll loop of one's own, workers or none.
#include "rig.hpp"

#include <array>
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
    bool run(std::size_t count, nanoseconds bound, std::vector<status>& taken) {
        while (count > 0) {
            completion out[4];
            const std::size_t got = client_.poll(out);
            for (std::size_t i = 0; i < got; ++i, --count) taken.push_back(out[i].status);
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
    std::vector<status> taken;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(300)); ++i) {
        if (i % 20 == 0) std::this_thread::sleep_for(2ms);
        const std::size_t batch = 1 + i % 8;
        for (std::size_t n = 0; n < batch; ++n) client.send_seed(mix(i + n) % 60'000, i);
        ASSERT_TRUE(loop.run(batch, until_hung(), taken)) << "a wake-up was lost in round " << i;
    }
    for (const status each : taken) ASSERT_EQ(each, status::ok);
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
}

TEST_P(waiting, an_epoll_loop_wakes_for_a_deadline_and_for_the_end_of_the_server) {
    held_exchanges held;
    server_options options = calm_server();
    options.drain_timeout = 10ms;
    rig r(GetParam(), held.keeper(), options);
    auto client = r.connect();
    epoll_loop loop(client);
    std::vector<status> taken;
    client.send_seed(10, 1, {.timeout = 100ms});
    ASSERT_TRUE(loop.run(1, until_hung(), taken));
    EXPECT_EQ(taken.at(0), status::timed_out);
    (void)reaches_its_handler(r, held);
    held.clear();
    EXPECT_TRUE(client.all_slots_free());

    client.send_seed(10, 1);
    ASSERT_TRUE(held.wait_for(1));
    std::thread stopper([&] {
        std::this_thread::sleep_for(20ms);
        r.served().stop();
    });
    ASSERT_TRUE(loop.run(1, until_hung(), taken));
    EXPECT_EQ(taken.at(1), status::peer_lost);
    stopper.join();
}

/// Of a channel, and of a server that the application drives.
TEST_P(waiting, idle_ends_stay_asleep) {
    rig threads(GetParam());
    EXPECT_EQ(threads.served().event_fd(), -1) << "its workers wait for it";
    auto client = threads.connect();
    client.send_seed(10, 1);
    EXPECT_EQ(client.finish(status::ok), 1U);
    server_options options = calm_server();
    options.workers = 0;
    rig driven(GetParam(), echo, options);
    int client_wakes = 0;
    int server_wakes = 0;
    const auto end = std::chrono::steady_clock::now() + 300ms;
    while (std::chrono::steady_clock::now() < end) {
        completion none;
        EXPECT_EQ(client.poll({&none, 1}), 0U);
        if (driven.served().poll() > 0 || !driven.served().arm() || !client->arm()) continue;
        std::array<pollfd, 2> fds{{{client->event_fd(), POLLIN, 0}, {driven.served().event_fd(), POLLIN, 0}}};
        (void)::poll(fds.data(), fds.size(), 100);
        client_wakes += fds[0].revents != 0 ? 1 : 0;
        server_wakes += fds[1].revents != 0 ? 1 : 0;
    }
    EXPECT_LT(client_wakes, 20) << "its descriptor is readable while there is nothing to do";
    EXPECT_LT(server_wakes, 20) << "its descriptor is readable while there is nothing to do";
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
