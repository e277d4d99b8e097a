// SPDX-License-Identifier: Apache-2.0
#include "core/net/unix_socket.hpp"

#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

/// Connections wait at a socket until nobody else may.
class full_unix_socket : public ::testing::Test {
  protected:
    void SetUp() override {
        const socket_address address = unix_address(host_.substr(1));
        listener_ = unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::bind(listener_.get(), address.get(), address.length), 0);
        ASSERT_EQ(::listen(listener_.get(), 1), 0);
        for (unique_fd one; start_connecting(address, one) == 0;) waiting_.push_back(std::move(one));
        ASSERT_FALSE(waiting_.empty());
    }

    std::string host_ = "@accel-full-" + std::to_string(::getpid());
    unique_fd listener_;
    std::vector<unique_fd> waiting_;
};

TEST_F(full_unix_socket, a_connect_waits_for_room_in_a_full_backlog) {
    auto made = std::async(std::launch::async, [this] { return connect_to(host_, 0, now() + 20s); });
    EXPECT_EQ(made.wait_for(20ms), std::future_status::timeout) << "it waits";
    while (made.wait_for(1ms) != std::future_status::ready)
        const unique_fd taken(::accept(listener_.get(), nullptr, nullptr));
    const auto result = made.get();
    EXPECT_TRUE(result.ok()) << result.error().message;
}

TEST_F(full_unix_socket, a_connect_to_a_full_backlog_ends_at_its_deadline) {
    const auto made = connect_to(host_, 0, now() + 20ms);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.code(), status::timed_out);
    EXPECT_NE(made.error().message.find("accepts no more connections"), std::string::npos) << made.error().message;
}

/// A process in a user namespace that knows its own user alone, as the number that all others have there.
int meet_as_nobody(const socket_address& to) {
    if (::unshare(CLONE_NEWUSER) != 0) return 77;
    std::ofstream("/proc/self/setgroups") << "deny" << std::flush;
    std::ofstream map("/proc/self/uid_map");
    if (!(map << "65534 0 1" << std::flush) || ::geteuid() != 65'534) return 77;
    const unique_fd made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(made.get(), to.get(), to.length) != 0) return 2;
    return is_own_user(made.get()) ? 1 : 0;
}

TEST(unix_user, a_peer_unknown_to_the_user_namespace_is_not_taken_for_the_own_user) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
    const socket_address address = unix_address("accel-user-" + std::to_string(::getpid()));
    const unique_fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(listener.get(), address.get(), address.length), 0);
    // The one who listens is shown to those who connect.
    ASSERT_EQ(::syscall(SYS_setresuid, -1, 12'345, -1), 0);
    const int listening = ::listen(listener.get(), 4);
    ASSERT_EQ(::syscall(SYS_setresuid, -1, 0, -1), 0);
    ASSERT_EQ(listening, 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(meet_as_nobody(address));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine makes no namespaces for its users";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "it took another user for its own";
}

}  // namespace
}  // namespace accel::core
