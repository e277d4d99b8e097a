// SPDX-License-Identifier: Apache-2.0
// Where the doors listen.
#include "serving/doors/http/listener.hpp"

#include "loopback.hpp"

#include <string>

#include <boost/asio/connect.hpp>
#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

bool reaches(boost::asio::io_context& loop, const std::string& address, std::uint16_t port) {
    error_code failed;
    tcp::socket made{loop};
    made.connect({boost::asio::ip::make_address(address), port}, failed);
    return !failed;
}

TEST(doors_listener, listens_on_every_address_of_both_families_at_a_star) {
    boost::asio::io_context loop;
    auto made = bind_at(loop, "*:0");
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_TRUE(listen(*made));
    error_code failed;
    const std::uint16_t port = made->local_endpoint(failed).port();
    EXPECT_TRUE(reaches(loop, "127.0.0.1", port));
    if (tests::has_ipv6() && made->local_endpoint(failed).address().is_v6()) {
        EXPECT_TRUE(reaches(loop, "::1", port));
    }
    EXPECT_FALSE(is_loopback(*made));
    EXPECT_EQ(bind_at(loop, "*:" + std::to_string(port)).code(), status::system_error) << "the port is taken";
}

TEST(doors_listener, client_has_an_address_of_ipv4_or_a_network_of_ipv6) {
    const auto client = [](const char* address) { return client_of({boost::asio::ip::make_address(address), 1}); };
    EXPECT_EQ(client("::ffff:10.0.0.1"), client("10.0.0.1"));
    EXPECT_NE(client("10.0.0.2"), client("10.0.0.1"));
    EXPECT_EQ(client("2001:db8:1:2:3::4"), client("2001:db8:1:2:ffff::1"));
    EXPECT_NE(client("2001:db8:1:2:3::4"), client("2001:db8:1:3:3::4"));
    EXPECT_NE(client("::1"), client("127.0.0.1"));
}

TEST(doors_listener, an_invalid_port_is_refused_in_the_words_of_a_uri) {
    boost::asio::io_context loop;
    for (const char* port : {"65536", "abc", "", "+1", " 80", "80x", "http"}) {
        const auto made = bind_at(loop, std::string{"127.0.0.1:"} + port);
        ASSERT_EQ(made.code(), status::invalid_argument) << port;
        const std::string wanted = std::string{"port '"} + port + "' is not a number from 0 to 65535";
        EXPECT_NE(made.error().message.find(wanted), std::string::npos) << made.error().message;
    }
}

}  // namespace
}  // namespace accel::examples::serving::doors
