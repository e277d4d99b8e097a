// SPDX-License-Identifier: Apache-2.0
#include "core/net/socket.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::core {
namespace {

/// As the kernel may do by itself for a client whose server is not there yet.
TEST(sockets, that_are_connected_to_themselves_are_refused) {
    const unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    ASSERT_EQ(::bind(socket.get(), address, sizeof own), 0);
    socklen_t size = sizeof own;
    ASSERT_EQ(::getsockname(socket.get(), address, &size), 0);
    ASSERT_EQ(::connect(socket.get(), address, sizeof own), 0);
    EXPECT_EQ(connect_outcome(socket.get()), ECONNREFUSED);
}

}  // namespace
}  // namespace accel::core
