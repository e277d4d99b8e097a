// SPDX-License-Identifier: Apache-2.0
// A channel belongs to one thread at a time: builds with assertions say so.
#include "patience.hpp"

#include <accel_transport/channel.hpp>
#include <accel_transport/server.hpp>

#include <array>
#include <thread>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class sole_use : public ::testing::Test {
  protected:
    sole_use() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
    context ctx = context::open().value();
    server serving = server::listen(ctx, {"local://sole_use"}, [](exchange one) { (void)one.reply(0); }).value();
    channel calls = channel::connect(ctx, "local://sole_use").value();
};

#ifndef NDEBUG
TEST_F(sole_use, two_threads_in_one_channel_end_the_process_with_a_sentence) {
    EXPECT_DEATH(
        {
            std::thread other([this] {
                std::array<completion, 1> none;
                (void)calls.wait(none, until_hung());
            });
            (void)within(until_hung(), [this] { return calls.cancel({}) == status::ok; });
            other.join();
        },
        "two threads use one channel at the same time: channel::.* use shared_channel or channel_pool");
}
#endif

TEST_F(sole_use, channel_may_go_from_thread_to_thread) {
    for (int i = 0; i < 100; ++i) std::thread([this] { EXPECT_TRUE(calls.call({})); }).join();
}

}  // namespace
}  // namespace accel::tests
