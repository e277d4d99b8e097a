// SPDX-License-Identifier: Apache-2.0
#include "loopback.hpp"
#include "unit/forbidden_calls.hpp"
#include "unit/zmq_pair.hpp"

#include <accel_transport/accel_transport.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::zmq::testing {
namespace {

/// Binds a port of this process's own loopback address, where no other process's connections have ports; 0 is
/// any. Returns it; 0: it is taken.
std::uint16_t bind_port(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, tests::own_loopback().c_str(), &address.sin_addr);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    const bool bound = ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
    ::close(fd);
    return bound ? ntohs(address.sin_port) : std::uint16_t{0};
}

TEST(zmq_data_port, each_worker_has_a_data_port_after_the_port_of_the_uri) {
    auto context = accel::context::open();
    server_options options;
    options.workers = 2;
    options.security.insecure = true;
    options.max_request_bytes = 4'096;
    for (int attempt = 0; attempt < 20; ++attempt) {
        const std::uint16_t port = bind_port(0);
        if (port == 0 || port > 65'000) continue;
        const std::string uri = "zmq://" + tests::own_loopback() + ":" + std::to_string(port);
        auto made = server::listen(
            *context, {uri}, [](exchange request) { request.reply(0); }, options);
        if (!made) continue;  // somebody else has one of the ports
        EXPECT_EQ(bind_port(static_cast<std::uint16_t>(port + 1)), 0);
        EXPECT_EQ(bind_port(static_cast<std::uint16_t>(port + 2)), 0);
        channel_options wanted;
        wanted.security.insecure = true;
        wanted.request_bytes = 4'096;
        auto client = channel::connect(*context, made->endpoints().at(0), wanted);
        ASSERT_TRUE(client) << client.error().message;
        EXPECT_TRUE(client->call({}));
        return;
    }
    FAIL() << "no three ports in a row were free";
}

/// A call from `host`.
void expect_served(context& ctx, const std::string& host, const std::string& port) {
    channel_options wanted;
    wanted.security.insecure = true;
    auto client = channel::connect(ctx, "zmq://" + host + port, wanted);
    ASSERT_TRUE(client) << host << ": " << client.error().message;
    EXPECT_TRUE(client->call({})) << host;
}

TEST(zmq_data_port, a_star_opens_the_data_port_at_every_address_of_both_families) {
    auto context = accel::context::open();
    server_options options;
    options.security.insecure = true;
    auto made = server::listen(
        *context, {"zmq://*:0"}, [](exchange request) { request.reply(0); }, options);
    ASSERT_TRUE(made) << made.error().message;
    const std::string endpoint = made->endpoints().at(0);
    const std::string port = endpoint.substr(endpoint.rfind(':'));
    expect_served(*context, "127.0.0.1", port);
    if (tests::has_ipv6()) expect_served(*context, "[::1]", port);
}

TEST(zmq_data_port, a_star_opens_the_data_port_on_ipv4_where_there_is_no_ipv6) {
    const auto listens = [] {
        if (!tests::forbid_ipv6()) return tests::child_cannot;
        auto context = accel::context::open();
        server_options options;
        options.security.insecure = true;
        auto made = server::listen(
            *context, {"zmq://*:0"}, [](exchange request) { request.reply(0); }, options);
        return made ? 0 : 1;
    };
    const int outcome = tests::run_in_a_child(listens);
    if (outcome == tests::child_cannot) GTEST_SKIP() << "system calls cannot be forbidden here";
    EXPECT_EQ(outcome, 0);
}

}  // namespace
}  // namespace accel::zmq::testing
