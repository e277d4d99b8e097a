// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"
#include "core/log_sink.hpp"
#include "loopback.hpp"
#include "patience.hpp"
#include "sanitizers.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

/// The log of a whole process: standard error that nobody reads, its end, and its children.
namespace accel::core {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using tests::patience;

/// A pipe, or a pair of sockets.
class channel_of_bytes {
  public:
    explicit channel_of_bytes(bool socket = false) {
        const int made = socket ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_.data())
                                : ::pipe2(ends_.data(), O_CLOEXEC);
        EXPECT_EQ(made, 0);
    }
    ~channel_of_bytes() {
        close_read();
        close_write();
    }
    channel_of_bytes(const channel_of_bytes&) = delete;
    channel_of_bytes& operator=(const channel_of_bytes&) = delete;
    [[nodiscard]] int read_end() const { return ends_[0]; }
    [[nodiscard]] int write_end() const { return ends_[1]; }
    void close_read() { close(ends_[0]); }
    void close_write() { close(ends_[1]); }

    void fill() const {
        ::fcntl(write_end(), F_SETFL, O_NONBLOCK);
        const std::array<char, 512> bytes{};
        while (::write(write_end(), bytes.data(), bytes.size()) > 0) {
        }
        while (::write(write_end(), bytes.data(), 1) > 0) {
        }
        ::fcntl(write_end(), F_SETFL, 0);
    }
    /// All that comes until its writers are gone, or up to a line's end.
    [[nodiscard]] std::string read(bool line = false) const {
        std::string all;
        std::array<char, 4096> part;
        while (!line || all.find('\n') == std::string::npos) {
            pollfd readable{read_end(), POLLIN, 0};
            const auto bound = std::chrono::duration_cast<std::chrono::milliseconds>(patience(20s));
            if (::poll(&readable, 1, static_cast<int>(bound.count())) <= 0) break;
            const ssize_t count = ::read(read_end(), part.data(), line ? 1 : part.size());
            if (count <= 0) break;
            all.append(part.data(), static_cast<std::size_t>(count));
        }
        return all;
    }

  private:
    static void close(int& fd) {
        if (fd >= 0) ::close(fd);
        fd = -1;
    }
    std::array<int, 2> ends_{-1, -1};
};

/// Its exit status, -1 for a signal; killed if it has not ended in time.
std::optional<int> end_of(pid_t process, nanoseconds within = patience(20s)) {
    int status = 0;
    const bool ended = tests::eventually(within, [&] { return ::waitpid(process, &status, WNOHANG) == process; });
    if (!ended) {
        ::kill(process, SIGKILL);
        ::waitpid(process, &status, 0);
        return std::nullopt;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class log_process_test : public ::testing::Test {
  protected:
    ~log_process_test() override { log().set_level(log_level::warning); }
    /// Starts log_probe with `errors` as its standard error.
    void start(const channel_of_bytes& errors, std::vector<std::string> arguments) {
        std::string program = ACCEL_TEST_LOG_PROBE;
        std::vector<char*> argv{program.data()};
        for (std::string& each : arguments) argv.push_back(each.data());
        argv.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, output.write_end(), STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, errors.write_end(), STDERR_FILENO);
        ASSERT_EQ(::posix_spawn(&process, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
        posix_spawn_file_actions_destroy(&actions);
    }
    std::string errors_of(const std::vector<std::string>& arguments, bool socket = false) {
        channel_of_bytes errors{socket};
        start(errors, arguments);
        errors.close_write();
        std::string text = errors.read();
        EXPECT_EQ(end_of(process), 0);
        return text;
    }

    channel_of_bytes output;
    pid_t process = -1;
};

TEST_F(log_process_test, a_warning_is_written_although_the_process_ends_at_once) {
    const char* const line = "[0-9]+-[0-9][0-9]-[0-9][0-9] [0-9:]+[.][0-9]+ \\[accel\\] warning: one warning\n";
    for (int i = 0; i < 20; ++i) EXPECT_THAT(errors_of({"warn"}), MatchesRegex(line));
    EXPECT_THAT(errors_of({"warn"}, true), MatchesRegex(line)) << "a socket, as of a service's journal";
}

TEST_F(log_process_test, lines_of_static_destructors_are_written) {
    EXPECT_THAT(errors_of({"static"}), HasSubstr("logged by a static destructor"));
}

TEST_F(log_process_test, a_reader_that_keeps_up_sees_the_end_of_a_flood_or_its_count) {
    const std::string text = errors_of({"flood", "20000"});
    std::uint64_t told = 0;
    for (std::size_t at = text.find(" lines to go"); at != std::string::npos; at = text.find(" lines to go", at + 1))
        ++told;
    for (std::size_t at = text.find(" log lines were dropped"); at != std::string::npos;
         at = text.find(" log lines were dropped", at + 1))
        told += std::stoull(text.substr(text.rfind(' ', at - 1) + 1));
    EXPECT_EQ(told, 20'000U);
}

TEST_F(log_process_test, an_unread_standard_error_does_not_delay_the_end) {
    for (const bool socket : {false, true}) {
        channel_of_bytes errors{socket};
        errors.fill();
        const auto begin = std::chrono::steady_clock::now();
        start(errors, {"flood", "50000"});
        EXPECT_EQ(end_of(process), 0);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(5s));
        EXPECT_EQ(::fcntl(errors.write_end(), F_GETFL) & O_NONBLOCK, 0) << "it belongs to others too";
    }
}

TEST_F(log_process_test, a_closed_standard_error_does_not_end_the_process) {
    channel_of_bytes errors;
    errors.close_read();
    start(errors, {"flood", "1000"});
    EXPECT_EQ(end_of(process), 0) << "not by SIGPIPE either";
}

TEST_F(log_process_test, a_server_with_an_unread_standard_error_serves_and_ends_at_sigterm) {
    channel_of_bytes errors;
    errors.fill();
    start(errors, {"serve", tests::own_loopback()});
    std::string uri = output.read(true);
    ASSERT_FALSE(uri.empty());
    uri.pop_back();

    auto ctx = context::open({.log = log_level::off}).value();
    channel_options options;
    options.security.insecure = true;
    options.slots = 4;
    options.connect_timeout = patience(10s);
    auto good = channel::connect(ctx, uri, options);
    ASSERT_TRUE(good.ok()) << good.error().message;
    options.slots = 100;  // refused, which the server logs
    for (int i = 0; i < 300; ++i) {
        const auto refused = channel::connect(ctx, uri, options);
        ASSERT_EQ(refused.code(), status::overloaded) << refused.error().message;
        // Each request is logged by its worker.
        const auto call = good->begin();
        ASSERT_EQ(call.code(), status::ok);
        std::memcpy(call->request.data(), &i, sizeof i);
        ASSERT_EQ(good->submit(call->id, sizeof i, {.timeout = patience(10s)}), status::ok);
        completion done;
        ASSERT_EQ(good->wait({&done, 1}, patience(15s)), 1U);
        ASSERT_EQ(done.status, status::ok) << "call " << i;
    }
    const auto begin = std::chrono::steady_clock::now();
    ::kill(process, SIGTERM);
    EXPECT_EQ(end_of(process), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, patience(5s));
}

/// In the child: a line of its own, to its standard error alone.
[[noreturn]] void log_in_child(const channel_of_bytes& errors, log_registration& parents_sink) {
    ::dup2(errors.write_end(), STDERR_FILENO);
    log().warn("logged by the child");
    const bool written = flush_log(patience(5s));
    parents_sink = {};
    ::_exit(written ? 0 : 1);
}

TEST_F(log_process_test, a_child_logs_though_its_parent_was_logging_at_the_fork) {
    if (tests::thread_sanitizer) GTEST_SKIP() << "ThreadSanitizer allows no new thread after a fork";
    if (tests::address_sanitizer) GTEST_SKIP() << "AddressSanitizer's malloc may stay locked after a fork";
    std::atomic<bool> stop{false};
    std::atomic<int> in_sink{0};
    log_registration sink{[&](log_level, std::string_view) { ++in_sink; }};
    std::vector<std::thread> noisy;
    for (int i = 0; i < 2; ++i) {
        noisy.emplace_back([&] {
            while (!stop) log().warn("logged by the parent");
        });
    }
    for (int i = 0; i < tests::effort(40); ++i) {
        channel_of_bytes errors;
        const pid_t child = ::fork();
        if (child == 0) log_in_child(errors, sink);
        errors.close_write();
        EXPECT_EQ(end_of(child), 0) << "child " << i;
        const std::string text = errors.read();
        EXPECT_THAT(text, HasSubstr("logged by the child"));
        EXPECT_THAT(text, ::testing::Not(HasSubstr("logged by the parent")));
    }
    stop = true;
    for (auto& each : noisy) each.join();
    EXPECT_GT(in_sink, 0);
}

TEST_F(log_process_test, the_log_of_the_parent_does_not_delay_the_exit_of_a_child) {
    log_registration sink{[](log_level, std::string_view) { std::this_thread::sleep_for(50ms); }};
    for (int i = 0; i < 20; ++i) log().warn("slow");
    const pid_t child = ::fork();
    if (child == 0) {
        flush_log(patience(10s));
        ::_exit(0);
    }
    EXPECT_EQ(end_of(child), 0);
}

}  // namespace
}  // namespace accel::core
