// SPDX-License-Identifier: Apache-2.0
// The end of a server beside threads and handlers at work. (random_test.cpp stops and drains it at any moment.)
#include "rig.hpp"
#include "sanitizers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::tests {
namespace {

server_options server_of_the_host() {
    server_options options = calm_server();
    options.memory = memory_kind::host();
    return options;
}

class stopping : public on_every_backend {
  protected:
    static server_options brief() {
        server_options options = calm_server();
        options.drain_timeout = 50ms;
        return options;
    }
};

TEST_P(stopping, drain_and_stop_wait_for_the_last_answer_and_no_longer) {
    for (const bool stops : {false, true}) {
        held_exchanges held;
        server_options options = calm_server();
        options.drain_timeout = until_hung();
        rig r(GetParam(), held.keeper(), options);
        auto client = r.connect();
        client.send_seed(1000, 1);
        ASSERT_TRUE(held.wait_for(1));
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(r.served().drain(50ms), status::timed_out);
        EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
        std::thread answering([&] {
            std::this_thread::sleep_for(30ms);
            echo(held.take());
        });
        if (stops)
            r.served().stop();
        else
            EXPECT_EQ(r.served().drain(until_hung()), status::ok);
        answering.join();
        EXPECT_LT(std::chrono::steady_clock::now() - start, until_hung() / 2);
        EXPECT_EQ(client.finish(status::ok), 1U) << "an answer given before the end has to arrive";
        r.served().stop();
    }
}

TEST_P(stopping, stop_beside_drains_ends_both) {
    for (int round = 0; round < effort(8); ++round) {
        held_exchanges held;
        rig r(GetParam(), held.keeper(), brief());
        auto client = r.connect();
        client.send_seed(100, 1);
        ASSERT_TRUE(held.wait_for(1));
        std::atomic<int> begun{0};
        std::vector<std::thread> others;
        for (int i = 0; i < 2; ++i)
            others.emplace_back([&] {
                ++begun;
                (void)r.served().drain(until_hung());
            });
        ASSERT_TRUE(eventually(until_hung(), [&] { return begun == 2; }));
        r.served().stop();
        for (std::thread& each : others) each.join();
        echo(held.take());
        EXPECT_EQ(client.finish(status::peer_lost), 1U);
    }
}

TEST_P(stopping, an_exchange_outlives_the_server) {
    held_exchanges held;
    std::optional<rig> r(std::in_place, GetParam(), held.keeper(), brief());
    std::optional<checked_channel> client(r->connect());
    for (std::uint64_t i = 0; i < 4; ++i) client->send_seed(3000, i);
    ASSERT_TRUE(held.wait_for(4));
    r->served().stop();
    exchange after_stop = held.take();
    EXPECT_TRUE(matches(after_stop.request(), after_stop.trace_id()));
    EXPECT_EQ(after_stop.reply(10), status::peer_lost);
    r->destroy_server();
    exchange after_server = held.take();
    EXPECT_TRUE(matches(after_server.request(), after_server.trace_id()));
    fill(after_server.response(), 1);
    EXPECT_EQ(after_server.fail(status::application_error, 1, "late"), status::peer_lost);
    client->forget();
    client.reset();
    r.reset();
    exchange after_all = held.take();
    EXPECT_TRUE(matches(after_all.request(), after_all.trace_id()));
    EXPECT_EQ(after_all.scheme(), GetParam().scheme);
    after_all.record(stage::inference, 1ms);
    EXPECT_EQ(after_all.reply(10), status::peer_lost);
    held.clear();
}

/// Calls without a pause from a thread of its own, until its channel has ended.
class busy_client {
  public:
    explicit busy_client(checked_channel made) : client_(std::move(made)), thread_([this] { run(); }) {}
    ~busy_client() { thread_.join(); }
    busy_client(const busy_client&) = delete;
    busy_client& operator=(const busy_client&) = delete;
    [[nodiscard]] std::uint64_t answered() const { return answered_; }

  private:
    void run() {
        completion c;
        status said = status::ok;
        while (said == status::ok || said == status::again) {
            const auto call = client_.begin();
            said = call.code();
            if (call && (said = client_.submit(call->id, 256)) != status::ok) {
                EXPECT_EQ(client_.release(call->id), status::ok);
            }
            while (client_.poll({&c, 1}) == 1) take(c);
        }
        EXPECT_EQ(said, status::closed);
        while (client_.open_calls() > 0) take(client_.next());
    }
    void take(const completion& c) {
        EXPECT_TRUE(c.status == status::ok || c.status == status::closed) << to_string(c.status);
        ++answered_;
    }
    std::atomic<std::uint64_t> answered_{0};
    checked_channel client_;
    std::thread thread_;
};

/// Control plane and data path both tell of the end, in either order.
TEST_P(stopping, every_channel_hears_whether_a_handler_may_have_seen_its_calls) {
    for (int round = 0; round < effort(20); ++round) {
        held_exchanges held;
        server_options options = brief();
        options.drain_timeout = 5ms;
        rig r(GetParam(), held.keeper(), options);
        auto waiting = r.connect();
        auto idle = r.connect();
        for (std::uint64_t i = 0; i < 3; ++i) waiting.send_seed(100, i);
        ASSERT_TRUE(held.wait_for(3));
        const std::jthread stopper([&] { r.served().stop(); });
        ASSERT_EQ(waiting.finish(status::peer_lost), 3U) << "in round " << round;
        EXPECT_EQ(waiting.begin().code(), status::peer_lost);
        completion none;
        EXPECT_EQ(idle.wait({&none, 1}, patience(10s)), 0U);
        ASSERT_EQ(idle.begin().code(), status::closed) << "in round " << round;
    }
}

TEST_P(stopping, busy_channels_hear_closed_and_do_not_delay_a_stop) {
    for (int round = 0; round < effort(20); ++round) {
        server_options options = calm_server();
        options.drain_timeout = round % 2 == 0 ? until_hung() : 50ms;
        rig r(GetParam(), echo, options);
        std::vector<std::unique_ptr<busy_client>> clients;
        clients.reserve(4);
        for (int i = 0; i < 1 + round % 4; ++i) clients.push_back(std::make_unique<busy_client>(r.connect()));
        ASSERT_TRUE(eventually(patience(10s), [&] {
            return std::all_of(clients.begin(), clients.end(), [](const auto& each) { return each->answered() > 20; });
        }));
        const auto start = std::chrono::steady_clock::now();
        r.served().stop();
        EXPECT_LT(std::chrono::steady_clock::now() - start, until_hung() / 2);
        clients.clear();
    }
}

/// Over zmq each of these answers has two frames, and the connection ends while they are unread.
TEST_P(stopping, answers_before_a_stop_can_be_read_after_it) {
    with_enough_time(20ms, [](nanoseconds time) {
        std::atomic<std::uint32_t> leases{0};
        held_exchanges held;
        rig r(GetParam(), held.keeper());
        const region memory = r.ctx().allocate(2000).value();
        fill(memory.whole().bytes(), 42);
        channel_options options = calm_client();
        options.slots = 64;
        options.response_bytes = 2000;
        auto client = r.connect(options);
        for (std::uint32_t i = 0; i < options.slots; ++i) client.send_seed(10, i);
        for (std::uint32_t i = 0; i < options.slots; ++i)
            EXPECT_EQ(held.take().reply(memory.whole(), leases), status::ok);
        std::this_thread::sleep_for(time);  // ZeroMQ does not say when they have arrived
        r.destroy_server();
        std::this_thread::sleep_for(time);
        std::uint32_t came = 0;
        for (std::uint32_t i = 0; i < options.slots; ++i) {
            const completion c = client.next();
            came += c.status == status::ok && matches(c.response, 42) ? 1U : 0U;
        }
        EXPECT_TRUE(eventually([&] { return leases == 0; })) << leases << " leases were not given back";
        return came == options.slots;
    });
}

/// Else the answered call looks as if no handler had seen it, and goes to the next server, too.
TEST_P(stopping, a_submit_after_a_stop_drops_no_answer) {
    rig r(GetParam());
    auto client = r.connect();
    client.send_seed(10, 1);
    const auto late = client.begin();
    ASSERT_EQ(late.code(), status::ok);
    ASSERT_TRUE(eventually([&] { return r.served().statistics().replies == 1; }));
    r.served().stop();
    const status said = client.submit(late->id, 10, {.trace_id = 2});
    if (said != status::ok) {
        EXPECT_EQ(said, status::closed);
        EXPECT_EQ(client.release(late->id), status::ok);
    }
    while (client.open_calls() > 0) {
        const completion c = client.next();
        EXPECT_EQ(c.status, c.trace_id == 2 ? status::closed : status::ok) << c.trace_id;
    }
}

TEST_P(stopping, a_handler_can_stop_its_own_server) {
    for (const std::uint32_t workers : {1U, 0U}) {
        if (workers == 0 && GetParam().scheme == "gdr") continue;  // its GPU has threads of its own
        server_options options = calm_server();
        options.workers = workers;
        server* own = nullptr;
        std::atomic<bool> returned{false};
        rig r(
            GetParam(),
            [&](exchange one) {
                own->stop();
                own->stop();
                echo(std::move(one));
                returned = true;
            },
            options);
        own = &r.served();
        std::atomic<bool> over{false};
        std::thread driver([&] {
            while (!over && workers == 0) r.served().poll();
        });
        auto client = r.connect();
        client.send_seed(100, 1);
        EXPECT_EQ(client.finish(status::ok), 1U);
        EXPECT_TRUE(eventually(until_hung(), [&] { return r.served().statistics().sessions == 0; }));
        EXPECT_TRUE(returned);
        over = true;
        driver.join();
        r.served().stop();
        channel_options brief = calm_client();
        brief.connect_timeout = patience(300ms);
        EXPECT_FALSE(r.try_connect(brief).ok());
    }
}

/// Whoever destroys the server meanwhile destroys what its handlers use next.
TEST_P(stopping, destruction_waits_for_a_handler_that_stopped_its_server) {
    server* own = nullptr;
    std::atomic<bool> stopped{false};
    std::atomic<bool> returns{false};
    std::atomic<bool> returned{false};
    rig r(GetParam(), [&](exchange one) {
        own->stop();
        stopped = true;
        while (!returns) std::this_thread::sleep_for(1ms);
        echo(std::move(one));
        returned = true;
    });
    own = &r.served();
    auto client = r.connect();
    client.send_seed(100, 1);
    ASSERT_TRUE(eventually(until_hung(), [&] { return stopped.load(); }));
    const std::jthread later([&] {
        std::this_thread::sleep_for(20ms);
        returns = true;
    });
    r.destroy_server();
    EXPECT_TRUE(returned);
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(stopping, a_handler_can_destroy_its_own_server) {
    std::optional<rig> r;
    std::atomic<bool> returned{false};
    r.emplace(GetParam(), [&](exchange one) {
        r->destroy_server();
        echo(std::move(one));
        returned = true;
    });
    std::optional<checked_channel> client(r->connect());
    client->send_seed(100, 1);
    EXPECT_EQ(client->finish(status::ok), 1U);
    completion none;
    const auto ends = [&] { return client->wait({&none, 1}, 1ms) == 0 && !(*client)->connected(); };
    EXPECT_TRUE(eventually(until_hung(), ends));
    ASSERT_TRUE(eventually(until_hung(), [&] { return returned.load(); })) << "it uses what ends with this test";
    client.reset();
}

/// Its server's threads are in a handler while the process ends.
[[noreturn]] void end_in_a_handler(const std::string& uri) {
    static std::optional<context> ctx(context::open({.log = log_level::off}).value());
    static std::optional<server> served(server::listen(
                                            *ctx, {uri}, [](exchange) { std::exit(7); }, server_of_the_host())
                                            .value());
    auto client = channel::connect(*ctx, served->endpoints().at(0), calm_client()).value();
    (void)client.call(std::span<const std::byte>{});
    ::_exit(1);
}

/// The same test in a process of its own: a fork might hold a lock of a thread that ends a server of the test before.
pid_t start_again(const char* variable) {
    const auto* const here = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string filter = std::string{"--gtest_filter="} + here->test_suite_name() + "." + here->name();
    std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    std::array<char*, 3> arguments{program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t silent{};
    ::posix_spawn_file_actions_init(&silent);
    ::posix_spawn_file_actions_addopen(&silent, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::setenv(variable, "1", 1);
    pid_t child = -1;
    const int failed = ::posix_spawn(&child, program.c_str(), &silent, nullptr, arguments.data(), environ);
    ::unsetenv(variable);
    ::posix_spawn_file_actions_destroy(&silent);
    return failed == 0 ? child : -1;
}

TEST_P(stopping, a_handler_can_end_the_process) {
    if (thread_sanitizer || address_sanitizer) GTEST_SKIP() << "sanitizers look at threads that the end leaves behind";
    constexpr const char* to_end = "ACCEL_TEST_ENDS_IN_A_HANDLER";
    if (std::getenv(to_end) != nullptr) end_in_a_handler(without_gpu(GetParam().listen_uri()));
    const pid_t child = start_again(to_end);
    ASSERT_GT(child, 0);
    int ended = 0;
    ASSERT_TRUE(eventually(until_hung(), [&] { return ::waitpid(child, &ended, WNOHANG) == child; }));
    EXPECT_TRUE(WIFEXITED(ended)) << "signal " << WTERMSIG(ended);
    EXPECT_EQ(WEXITSTATUS(ended), 7);
}

ACCEL_INSTANTIATE(stopping, all_backends);

}  // namespace
}  // namespace accel::tests
