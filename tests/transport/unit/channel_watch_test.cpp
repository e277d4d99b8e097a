// SPDX-License-Identifier: Apache-2.0
// A transport's descriptor has no watcher until the application sleeps on the channel's, because each costs the kernel
// work at each message.
#include "unit/scripted_client.hpp"

#include <array>
#include <chrono>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

struct channel_watch : ::testing::Test, scripted_client {
    channel_watch() : scripted_client(2, 64) {}
};

TEST_F(channel_watch, taking_the_descriptor_starts_the_watch) {
    const auto call = client->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client->submit(call->id, 4, {}), status::ok);
    std::array<completion, 1> none;
    EXPECT_EQ(client->poll(none), 0U);
    EXPECT_EQ(client->wait(none, std::chrono::milliseconds{1}), 0U);
    EXPECT_EQ(*server->watchers, 0);
    EXPECT_GE(client->event_fd(), 0);
    EXPECT_EQ(*server->watchers, 1);
    EXPECT_GE(client->event_fd(), 0);
    EXPECT_EQ(*server->watchers, 1);
}

/// What is armed is what the descriptor, taken afterwards, tells of.
TEST_F(channel_watch, the_watch_starts_before_the_application_arms) {
    EXPECT_TRUE(client->arm());
    EXPECT_EQ(*server->watchers, 1);
}

/// Else a channel that waits for the calls in flight would spin.
TEST_F(channel_watch, a_drain_wakes_the_watch_once) {
    const auto call = client->begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client->submit(call->id, 4, {}), status::ok);
    EXPECT_TRUE(client->arm());
    watch->drain();
    pollfd told{watch->event_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&told, 1, 0), 1);
    EXPECT_FALSE(client->arm());
    EXPECT_EQ(client->poll({}), 0U);
    EXPECT_FALSE(client->connected());
    EXPECT_TRUE(client->arm());
    EXPECT_EQ(::poll(&told, 1, 0), 0);
    EXPECT_EQ(client->submit(call->id, 4, {}), status::invalid_state) << "it is in flight";
    watch->end(status::closed);
    EXPECT_FALSE(client->arm());
}

}  // namespace
}  // namespace accel::core
