// SPDX-License-Identifier: Apache-2.0
#include "core/control/same_host.hpp"

#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(same_host, an_offer_of_this_host_is_taken) {
    const nanoseconds asked = now();
    EXPECT_EQ(same_host::accepted_name(same_host::offer("digits"), asked), "digits");
    EXPECT_EQ(same_host::accepted_name(same_host::offer(std::string(64, 'x')), asked), std::string(64, 'x'));
    EXPECT_LE(same_host::offer(std::string(64, 'x')).size(), 96U) << "it fits a control message";
}

TEST(same_host, foreign_or_malformed_offers_are_not_taken) {
    const nanoseconds asked = now();
    const std::string offer = same_host::offer("digits");
    std::string elsewhere = offer;
    elsewhere[4] = elsewhere[4] == '0' ? '1' : '0';
    EXPECT_EQ(same_host::accepted_name(elsewhere, asked), "");
    EXPECT_FALSE(same_host::has_another_clock(elsewhere, asked));
    EXPECT_FALSE(same_host::has_another_clock(offer, asked));
    EXPECT_EQ(same_host::accepted_name(same_host::offer(std::string(65, 'x')), asked), "");
    EXPECT_EQ(same_host::accepted_name(same_host::offer(""), asked), "");
    for (const char* other : {"", "shm", "shm:", "shm::digits", "tcp", "local:1.00000000:digits", "digits"})
        EXPECT_EQ(same_host::accepted_name(other, asked), "") << other;
}

/// Copies of a virtual machine have the same boot id, namespaces and users.
TEST(same_host, an_offer_by_another_clock_is_not_taken) {
    const std::string behind = same_host::offer("digits");
    const nanoseconds made = now();
    while (now() < made + 1ms) {
    }
    EXPECT_EQ(same_host::accepted_name(behind, now()), "") << "it was made before anybody asked";
    EXPECT_TRUE(same_host::has_another_clock(behind, now()));
    const nanoseconds asked = now() - 1ms;
    std::string ahead = same_host::offer("digits");
    ahead[21] = ahead[21] == 'f' ? '0' : static_cast<char>(ahead[21] == '9' ? 'a' : ahead[21] + 1);
    EXPECT_EQ(same_host::accepted_name(ahead, asked), "") << "it will be made";
    std::string cut = same_host::offer("digits");
    EXPECT_EQ(same_host::accepted_name(cut.erase(21, 1), asked), "");
}

/// Names of abstract sockets hold in their network namespace only.
TEST(same_host, an_offer_of_another_network_namespace_is_not_taken) {
    const nanoseconds asked = now();
    const std::string offer = same_host::offer("digits");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
        ::_exit(same_host::accepted_name(offer, asked).empty() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine makes no namespaces for its users";
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace accel::core
