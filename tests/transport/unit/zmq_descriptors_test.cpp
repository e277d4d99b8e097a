// SPDX-License-Identifier: Apache-2.0
#include "unit/zmq_pair.hpp"

#include <functional>

#include <sys/resource.h>
#include <sys/wait.h>

namespace accel::zmq::testing {
namespace {

/// In a child process; its exit status, or minus the signal that ended it.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int outcome = 0;
    ::waitpid(child, &outcome, 0);
    return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : -WTERMSIG(outcome);
}

/// Leaves this process `count` more descriptors than it has open.
void leave_descriptors(std::size_t count) {
    const rlim_t open = open_descriptors() - 1;  // without that of the look itself
    const rlimit limit{open + count, open + count};
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

// No status with which a sanitizer ends a program.
constexpr int served = 10;
constexpr int said_so = 11;
constexpr int said_something_else = 12;

int judge(const error& why) {
    const bool good = why.code == status::system_error && why.message.find("limit of open files") != std::string::npos;
    if (!good) std::fprintf(stderr, "%d: %s\n", static_cast<int>(why.code), why.message.c_str());
    return good ? said_so : said_something_else;
}

/// The way of a session, with so few descriptors.
int open_session(bool insecure) {
    const auto backend = make_backend();
    auto security = std::make_shared<core::security_identity>();
    security->options.insecure = insecure;
    core::poller_options options;
    options.role = core::link_role::server;
    options.host = "127.0.0.1";
    options.security = security;
    auto server_events = backend->open_poller(options);
    if (!server_events) return judge(server_events.error());
    options.role = core::link_role::client;
    auto client_events = backend->open_poller(options);
    if (!client_events) return judge(client_events.error());
    core::link_config config;
    config.geometry = {1, 64, 64};
    config.send = make_slots(1, 64);
    config.receive = make_slots(1, 64);
    auto client = (*client_events)->open_link(config);
    if (!client) return judge(client.error());
    config.role = core::link_role::server;
    auto server = (*server_events)->open_link(config);
    if (!server) return judge(server.error());
    auto attached = (*server)->attach({0, {}, {}, (*client)->describe()}, core::never);
    if (!attached) return judge(attached.error());
    attached =
        (*client)->attach({0, {}, "127.0.0.1", (*server)->describe(), 0, "127.0.0.1"}, core::deadline_after(patience));
    return attached ? served : judge(attached.error());
}

class zmq_descriptors_test : public ::testing::TestWithParam<bool> {};

TEST_P(zmq_descriptors_test, a_process_survives_and_reports_a_lack_of_descriptors) {
    bool served_once = false;
    for (std::size_t left = 0; left <= 30; ++left) {
        const int outcome = in_child([left] {
            leave_descriptors(left);
            return open_session(GetParam());
        });
        EXPECT_TRUE(outcome == served || outcome == said_so) << left << " descriptors: " << outcome;
        served_once = served_once || outcome == served;
        EXPECT_FALSE(served_once && outcome != served) << left << " descriptors no longer do";
    }
    EXPECT_TRUE(served_once);
}

INSTANTIATE_TEST_SUITE_P(with_and_without_keys, zmq_descriptors_test, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "plain" : "curve"; });

}  // namespace
}  // namespace accel::zmq::testing
