// SPDX-License-Identifier: Apache-2.0
// Each system call of the library fails once: a typed error, and nothing is lost.
#include "conformance/rig.hpp"
#include "faults/failing_calls.hpp"
#include "keys.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>

namespace accel::faults {
namespace {

using namespace tests;

class failing_calls : public on_every_backend {
  protected:
    /// Tries until none of its calls fails any more, for each of them. `attempt` returns what the library has said.
    template <class Attempt>
    void expect_errors(whose of, const Attempt& attempt) {
        constexpr std::size_t most = 12;  // of those that are repeated while a thread waits
        std::size_t attempts = 0;
        for (const failure& how : failures_) {
            // The socket of a session over `shm` is full only where its peer is awake.
            if (GetParam().scheme == "shm" && how.call == "send" && how.number == EAGAIN) continue;
            bool failed = true;
            // It concerns no object that would tell whose answer it is for: the first one is not the other client's.
            const std::size_t last = how.call == "zmq_msg_init_data" ? 1 : most;
            for (std::size_t number = 0; failed && number < last; ++number) {
                const std::string where =
                    std::string{how.call} + " " + std::to_string(number) + ": " + std::strerror(how.number);
                SCOPED_TRACE(where);
                fail_call(how, number, of);
                const error said = attempt();
                failed = stop_failing_calls();
                ++attempts;
                if (said.code == status::ok) continue;
                EXPECT_TRUE(failed) << where << ": " << said.message;
                EXPECT_TRUE(is_typed(said.code)) << to_string(said.code) << " for " << where;
                EXPECT_FALSE(said.message.empty()) << where;
            }
        }
        std::printf("%zu attempts\n", attempts);
    }
    std::span<const failure> failures_ = all_failures();
    static bool is_typed(status code) {
        constexpr std::array all{status::system_error, status::out_of_memory, status::peer_lost, status::unsupported,
                                 status::unauthorized};
        return std::ranges::find(all, code) != all.end();
    }
    /// While another client calls, which has to notice nothing.
    void fail_while_connecting(whose of) {
        server_options sleeping = calm_server();
        sleeping.poll = poll_mode::block;
        const handler service = [](exchange one) {
            fall_asleep();
            echo(std::move(one));
        };
        rig r(GetParam(), service, sleeping);
        auto other = r.connect();
        context ctx = quiet_context();
        ASSERT_EQ(try_calls(ctx, r.uri()).code, status::ok);
        const auto is_alone = [&] { return r.served().statistics().sessions == 1; };
        EXPECT_TRUE(eventually(until_hung(), is_alone));
        const auto before = open_descriptors();
        expect_errors(of, [&] {
            error said = try_calls(ctx, r.uri());
            other.send_seed(100, 1);
            EXPECT_EQ(other.finish(status::ok), 1U);
            return said;
        });
        EXPECT_TRUE(eventually(until_hung(), is_alone));
        EXPECT_TRUE(eventually(until_hung(), [&] { return open_descriptors() <= before; }))
            << open_descriptors() << " descriptors, there were " << before;
    }
    template <class Made>
    static error why(const Made& made) {
        return made ? error{} : made.error();
    }
    /// Usually the other end sleeps after this, and the next message has to wake it.
    static void fall_asleep() { std::this_thread::sleep_for(2ms); }
    /// A call by an application that sleeps until the channel's descriptor is readable.
    static status call_from_a_loop(channel& client) {
        const auto call = client.begin();
        if (!call) return call.error();
        fall_asleep();
        if (const status said = client.submit(call->id, 100); said != status::ok) return said;
        pollfd waited{client.event_fd(), POLLIN, 0};
        completion done;
        while (client.poll({&done, 1}) == 0) {
            if (!client.arm()) continue;
            int ready = -1;
            while (ready < 0) ready = ::poll(&waited, 1, static_cast<int>(until_hung() / 1ms));
            const bool woken = ready == 1;
            EXPECT_TRUE(woken) << "it is deaf";
            if (!woken) return status::again;
        }
        EXPECT_EQ(client.release(call->id), status::ok);
        return done.status;
    }
    static error try_calls(context& ctx, const std::string& uri) {
        auto made = channel::connect(ctx, uri, brief());
        if (!made) return made.error();
        const status in_loop = call_from_a_loop(*made);
        if (in_loop != status::ok) return {in_loop, 0, "from an event loop"};
        const std::array<std::byte, 100> request{};
        const auto answer = made->call(request, {.timeout = until_hung()});
        EXPECT_NE(answer.code(), status::timed_out) << "somebody was not woken";
        return answer.ok() ? error{} : error{answer.code(), 0, "call"};
    }
    static channel_options brief() {
        channel_options options = calm_client();
        options.connect_timeout = until_hung();
        options.poll = poll_mode::block;
        options.call_timeout = std::chrono::hours{1};  // its end would wake a client that nobody has woken
        return options;
    }
};

TEST_P(failing_calls, opening_a_context_reports_each_failed_system_call) {
    const auto before = open_descriptors();
    expect_errors(whose::calling_threads, [] { return why(context::open({.log = log_level::off})); });
    EXPECT_TRUE(eventually(until_hung(), [&] { return open_descriptors() <= before; }))
        << open_descriptors() << " descriptors, there were " << before;
}

TEST_P(failing_calls, listening_reports_each_failed_system_call) {
    const std::string uri = GetParam().listen_uri();
    context ctx = quiet_context();
    (void)server::listen(ctx, {uri}, echo, calm_server());
    const auto before = open_descriptors();
    server_options driven = calm_server();
    driven.workers = 0;
    for (const server_options& options : {calm_server(), driven})
        expect_errors(whose::calling_threads, [&] {
            auto made = server::listen(ctx, {uri}, echo, options);
            if (made && options.workers == 0) {
                EXPECT_GE(made->event_fd(), 0);
            }
            return why(made);
        });
    EXPECT_TRUE(eventually(until_hung(), [&] { return open_descriptors() <= before; }))
        << open_descriptors() << " descriptors, there were " << before;
}

TEST_P(failing_calls, connecting_and_calling_report_each_failed_system_call) {
    fail_while_connecting(whose::calling_threads);
}

/// The server cannot send its answer to a data connection: another try succeeds.
TEST_P(failing_calls, a_data_connection_is_tried_again_when_its_answer_cannot_be_sent) {
    if (GetParam().scheme != "tcp") GTEST_SKIP() << "it has no such answers";
    rig r(GetParam());
    const auto other = r.connect();  // from now on the control connection is an old one
    const auto full = std::ranges::find_if(
        all_failures(), [](const failure& each) { return each.call == "send" && each.number == ENOMEM; });
    fail_call(*full, 0, whose::other_threads);
    const auto made = r.try_connect();
    EXPECT_TRUE(stop_failing_calls());
    EXPECT_TRUE(made) << made.error().message;
}

TEST_P(failing_calls, failed_system_calls_of_other_threads_end_at_most_one_session) {
    fail_while_connecting(whose::other_threads);
}

ACCEL_INSTANTIATE(failing_calls, all_backends);

/// With keys where a scheme has them.
class failing_libraries : public failing_calls {
  protected:
    void SetUp() override {
        failures_ = library_failures(GetParam().scheme);
        if (failures_.empty()) GTEST_SKIP() << "it uses no other library";
        if (GetParam().sockets) ::setenv("ACCEL_TEST_KEYS", keys_.path().c_str(), 1);
    }
    void TearDown() override { ::unsetenv("ACCEL_TEST_KEYS"); }
    key_folder keys_;
};

TEST_P(failing_libraries, listening_reports_each_failed_library_call) {
    const std::string uri = GetParam().listen_uri();
    context ctx = quiet_context();
    (void)server::listen(ctx, {uri}, echo, calm_server());
    const auto before = open_descriptors();
    expect_errors(whose::calling_threads, [&] { return why(server::listen(ctx, {uri}, echo, calm_server())); });
    EXPECT_TRUE(eventually(until_hung(), [&] { return open_descriptors() <= before; }))
        << open_descriptors() << " descriptors, there were " << before;
}

TEST_P(failing_libraries, connecting_and_calling_report_each_failed_library_call) {
    fail_while_connecting(whose::calling_threads);
}

TEST_P(failing_libraries, failed_library_calls_of_other_threads_end_at_most_one_session) {
    fail_while_connecting(whose::other_threads);
}

ACCEL_INSTANTIATE(failing_libraries, all_backends);

}  // namespace
}  // namespace accel::faults
