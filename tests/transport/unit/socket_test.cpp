// SPDX-License-Identifier: Apache-2.0
#include "core/net/socket.hpp"

#include "loopback.hpp"
#include "unit/forbidden_calls.hpp"

#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

/// As the kernel may do by itself for a client whose server is not there yet.
TEST(sockets, a_socket_connected_to_itself_is_refused) {
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

/// The client's address as the server sees it; empty: not reached.
std::string seen_from(int listening, const std::string& host) {
    const auto client = connect_to(host, local_port(listening), deadline_after(20s));
    if (!client) return {};
    if (wait_ready(listening, POLLIN, deadline_after(20s)) != 0) return {};
    const unique_fd server(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    return peer_address(server.get());
}

TEST(sockets, only_ipv6_addresses_have_a_network) {
    EXPECT_EQ(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    EXPECT_EQ(network_of("2001:db8:1:2::1"), network_of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
    EXPECT_NE(network_of("2001:db8:1:2::1"), network_of("2001:db8:1:3::1"));
    EXPECT_EQ(network_of("fe80::1%eth0"), "fe80::/64");
    for (const char* other : {"10.0.0.1", "this host", "an unknown address", ""}) EXPECT_EQ(network_of(other), "");
}

TEST(sockets, a_star_listens_on_every_address_of_both_families) {
    auto listening = listen_on("*", 0);
    ASSERT_TRUE(listening) << listening.error().message;
    EXPECT_EQ(seen_from(listening->get(), "127.0.0.1"), "127.0.0.1") << "as it is known on a socket of IPv4";
    if (tests::has_ipv6()) {
        EXPECT_EQ(seen_from(listening->get(), "::1"), "::1");
    }
    EXPECT_EQ(listen_on("*", local_port(listening->get())).error().native, EADDRINUSE);
}

TEST(sockets, a_star_listens_on_ipv4_where_there_is_no_ipv6) {
    const auto listens = [] {
        if (!tests::forbid_ipv6()) return tests::child_cannot;
        auto listening = listen_on("*", 0);
        return listening && seen_from(listening->get(), "127.0.0.1") == "127.0.0.1" ? 0 : 1;
    };
    const int outcome = tests::run_in_a_child(listens);
    if (outcome == tests::child_cannot) GTEST_SKIP() << "system calls cannot be forbidden here";
    EXPECT_EQ(outcome, 0);
}

/// Half of a server would be worse than an error.
TEST(sockets, a_star_does_not_listen_where_one_family_has_the_port_taken) {
    if (!tests::has_ipv6()) GTEST_SKIP() << "there is one family";
    const unique_fd other(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(other.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    ASSERT_EQ(::listen(other.get(), 1), 0);
    EXPECT_EQ(listen_on("*", local_port(other.get())).error().native, EADDRINUSE);
}

}  // namespace
}  // namespace accel::core
