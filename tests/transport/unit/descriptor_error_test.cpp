// SPDX-License-Identifier: Apache-2.0
// The system gives no descriptor: the sentence says what is true.
#include "core/net/descriptor_error.hpp"

#include "core/net/unique_fd.hpp"
#include "unit/forbidden_calls.hpp"

#include <accel_transport/accel_transport.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ostream>
#include <string>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>

namespace accel::core {
namespace {

bool holds(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(descriptor_error, the_sentence_fits_errno) {
    EXPECT_EQ(no_descriptor("for a session", EMFILE).message,
              "no descriptor is left for a session; raise the limit of open files (ulimit -n)");
    EXPECT_TRUE(holds(no_descriptor("for a session", ENFILE).message, "fs.file-max"));
    EXPECT_EQ(no_descriptor("for a session", ENOMEM).code, status::out_of_memory);
    for (const int number : {ENOMEM, ENOBUFS, ENOSPC, EPERM, EACCES, ENOSYS, EINVAL}) {
        const error said = no_descriptor("for a session", number);
        EXPECT_EQ(said.native, number);
        EXPECT_TRUE(holds(said.message, std::strerror(number))) << said.message;
        EXPECT_FALSE(holds(said.message, "is left")) << said.message;
        EXPECT_FALSE(holds(said.message, "ulimit")) << said.message;
    }
}

TEST(descriptor_error, a_descriptor_that_is_not_open_keeps_its_error) {
    unique_fd made(::open("/nowhere/at/all", O_RDONLY | O_CLOEXEC));
    errno = EMFILE;
    EXPECT_EQ(made.failure(), ENOENT);
    const unique_fd moved(std::move(made));
    EXPECT_EQ(moved.failure(), ENOENT);
    EXPECT_EQ(unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)).failure(), 0);
    EXPECT_EQ(unique_fd().failure(), EBADF);
    errno = 0;
    EXPECT_FALSE(unique_fd(-1).open());
}

struct forbidden {
    const char* name;
    long call;
    int failure;
    const char* scheme;
};

/// Listens, connects and calls. The first error; `ok`: there was none.
error first_error(const std::string& listen_at) {
    auto ctx = context::open({.log = log_level::off});
    if (!ctx) return ctx.error();
    server_options serving;
    serving.security.insecure = true;
    auto server = server::listen(
        *ctx, {listen_at}, [](exchange one) { (void)one.reply(0); }, serving);
    if (!server) return server.error();
    channel_options calling;
    calling.security.insecure = true;
    auto client = channel::connect(*ctx, server->endpoints().at(0), calling);
    if (!client) return client.error();
    const auto answer = client->call({});
    return answer ? error{} : answer.error();
}

/// Prints the sentence where it is not true.
bool tells_why(const forbidden& what) {
    const std::string scheme = what.scheme;
    const std::string place = scheme == "shm" || scheme == "local" ? std::string("forbidden") : "127.0.0.1:0";
    const error said = first_error(scheme + "://" + place);
    // A probe, which runs before, has no errno of its own.
    const bool same = said.native == what.failure || said.code == status::unsupported;
    const bool right = said.code != status::ok && same && holds(said.message, std::strerror(what.failure)) &&
                       !holds(said.message, "is left");
    if (!right) std::fprintf(stderr, "%s: %s\n", what.name, said.message.c_str());
    return right;
}

// NOLINTNEXTLINE(readability-identifier-naming): as GoogleTest looks for it
void PrintTo(const forbidden& what, std::ostream* out) {
    *out << what.name;
}

/// Older C libraries start them by another call than clone3.
bool starts_threads() {
    try {
        std::thread([] {}).join();
        return true;
    } catch (const std::system_error&) {
        return false;
    }
}

class forbidden_calls : public ::testing::TestWithParam<forbidden> {};

TEST_P(forbidden_calls, a_forbidden_system_call_is_not_reported_as_a_lack_of_descriptors) {
    const auto body = [] {
        if (!tests::forbid_call(GetParam().call, -1, GetParam().failure)) return tests::child_cannot;
        if (GetParam().call == SYS_clone3 && starts_threads()) return tests::child_cannot;
        return tells_why(GetParam()) ? 0 : 1;
    };
    const int outcome = tests::run_in_a_child(body);
    if (outcome == tests::child_cannot) GTEST_SKIP() << "system calls cannot be forbidden here";
    EXPECT_EQ(outcome, 0);
}

constexpr forbidden all_forbidden[] = {
    {"eventfd_tcp", SYS_eventfd2, EPERM, "tcp"},        {"eventfd_shm", SYS_eventfd2, ENOSYS, "shm"},
    {"eventfd_local", SYS_eventfd2, EPERM, "local"},    {"epoll_tcp", SYS_epoll_create1, EPERM, "tcp"},
    {"epoll_shm", SYS_epoll_create1, ENOMEM, "shm"},    {"epoll_ctl_tcp", SYS_epoll_ctl, ENOSPC, "tcp"},
    {"epoll_ctl_shm", SYS_epoll_ctl, ENOSPC, "shm"},    {"memfd_shm", SYS_memfd_create, EPERM, "shm"},
    {"timerfd_tcp", SYS_timerfd_create, ENOSYS, "tcp"}, {"connect_tcp", SYS_connect, EPERM, "tcp"},
    {"threads_tcp", SYS_clone3, EPERM, "tcp"},          {"threads_shm", SYS_clone3, EPERM, "shm"},
    {"socket_tcp", SYS_socket, EACCES, "tcp"},          {"listen_tcp", SYS_listen, ENOMEM, "tcp"},
#if defined(ACCEL_ZMQ)
    {"eventfd_zmq", SYS_eventfd2, EPERM, "zmq"},        {"epoll_zmq", SYS_epoll_create1, ENOMEM, "zmq"},
#endif
};

INSTANTIATE_TEST_SUITE_P(over, forbidden_calls, ::testing::ValuesIn(all_forbidden),
                         [](const auto& info) { return std::string{info.param.name}; });

}  // namespace
}  // namespace accel::core
