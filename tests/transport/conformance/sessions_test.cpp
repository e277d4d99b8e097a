// SPDX-License-Identifier: Apache-2.0
// Very many sessions of one server at the same time.
#include "rig.hpp"

#include <algorithm>
#include <thread>
#include <vector>

#include <sys/resource.h>

namespace accel::tests {
namespace {

class sessions : public on_every_backend {};

channel_options small_slots() {
    channel_options options = calm_client();
    options.slots = 2;
    options.request_bytes = options.response_bytes = 256;
    options.connect_timeout = patience(30s);
    options.peer_timeout = patience(20s);
    return options;
}

/// As many as there are descriptors for: 12 of both ends of a session. `main` has raised the limit.
std::size_t sessions_of_this_process() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur / 12;
}

TEST_P(sessions, a_server_serves_very_many_sessions_at_once) {
    const std::size_t wanted =
        std::min(static_cast<std::size_t>(effort(static_cast<int>(GetParam().sessions))), sessions_of_this_process());
    server_options options = calm_server();
    options.workers = 2;
    options.max_sessions = options.max_client_sessions = static_cast<std::uint32_t>(wanted);
    options.peer_timeout = patience(20s);
    rig r(GetParam(), echo, options);
    std::vector<checked_channel> clients;
    clients.reserve(wanted);
    for (std::size_t i = 0; i < wanted; ++i) clients.push_back(r.connect(small_slots()));
    EXPECT_EQ(r.served().statistics().sessions, wanted);
    EXPECT_EQ(r.try_connect(small_slots()).code(), status::overloaded);
    for (std::uint64_t round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < clients.size(); ++i) {
            clients[i].send_seed(200, i + round);
            clients[i].send_seed(1, i + round + 1);
        }
        for (auto& client : clients) {
            for (int n = 0; n < 2; ++n) {
                const completion c = client.next(patience(20s));
                ASSERT_EQ(c.status, status::ok);
                ASSERT_TRUE(matches(c.response, c.trace_id));
            }
        }
    }
    clients.clear();
    EXPECT_TRUE(eventually(patience(20s), [&] { return r.served().statistics().sessions == 0; }));
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
    EXPECT_TRUE(eventually(patience(10s), [&] { return r.served().statistics().memory_bytes == 0; }));
}

TEST_P(sessions, several_threads_open_and_close_sessions) {
    server_options options = calm_server();
    options.workers = 2;
    rig r(GetParam(), echo, options);
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 4; ++t)
        threads.emplace_back([&r, t] {
            for (int i = 0; i < effort(25); ++i) {
                auto client = r.connect(small_slots());
                client.send_seed(100, t);
                EXPECT_EQ(client.finish(status::ok), 1U);
            }
        });
    for (std::thread& t : threads) t.join();
    EXPECT_TRUE(eventually(patience(10s), [&] { return r.served().statistics().sessions == 0; }));
    EXPECT_EQ(r.served().statistics().sessions_lost, 0U);
}

ACCEL_INSTANTIATE(sessions, all_backends);

}  // namespace
}  // namespace accel::tests
