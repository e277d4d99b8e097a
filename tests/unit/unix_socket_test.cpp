// SPDX-License-Identifier: Apache-2.0
#include "core/net/unix_socket.hpp"

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
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

TEST_F(full_unix_socket, gives_room_to_who_waits_for_it) {
    auto made = std::async(std::launch::async, [this] { return connect_to(host_, 0, now() + 20s); });
    EXPECT_EQ(made.wait_for(20ms), std::future_status::timeout) << "it waits";
    while (made.wait_for(1ms) != std::future_status::ready)
        const unique_fd taken(::accept(listener_.get(), nullptr, nullptr));
    const auto result = made.get();
    EXPECT_TRUE(result.ok()) << result.error().message;
}

TEST_F(full_unix_socket, keeps_nobody_beyond_the_deadline) {
    const auto made = connect_to(host_, 0, now() + 20ms);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.code(), status::timed_out);
    EXPECT_NE(made.error().message.find("takes up no more"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace accel::core
