// SPDX-License-Identifier: Apache-2.0
#include "core/control/same_host.hpp"

#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::core {
namespace {

TEST(same_host, an_offer_of_this_host_is_taken) {
    EXPECT_EQ(same_host::accepted_name(same_host::offer("digits")), "digits");
    EXPECT_EQ(same_host::accepted_name(same_host::offer(std::string(64, 'x'))), std::string(64, 'x'));
}

TEST(same_host, other_offers_are_not) {
    const std::string offer = same_host::offer("digits");
    std::string elsewhere = offer;
    elsewhere[4] = elsewhere[4] == '0' ? '1' : '0';
    EXPECT_EQ(same_host::accepted_name(elsewhere), "");
    EXPECT_EQ(same_host::accepted_name(same_host::offer(std::string(65, 'x'))), "");
    EXPECT_EQ(same_host::accepted_name(same_host::offer("")), "");
    for (const char* other : {"", "shm", "shm:", "shm::digits", "tcp", "local:1.00000000:digits", "digits"})
        EXPECT_EQ(same_host::accepted_name(other), "") << other;
}

TEST(same_host, an_offer_fits_a_control_message) {
    EXPECT_LE(same_host::offer(std::string(64, 'x')).size(), 96U);
}

/// Names of abstract sockets hold in their network namespace only.
TEST(same_host, an_offer_of_another_network_namespace_is_not_taken) {
    const std::string offer = same_host::offer("digits");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
        ::_exit(same_host::accepted_name(offer).empty() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine makes no namespaces for its users";
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace accel::core
