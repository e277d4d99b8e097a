// SPDX-License-Identifier: Apache-2.0
#include <accel_transport/accel_transport.hpp>

#include <array>
#include <utility>

#include <gtest/gtest.h>

namespace accel {
namespace {

class moved_from : public ::testing::Test {
  protected:
    moved_from() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
    context ctx = context::open().value();
    server serving = server::listen(ctx, {"local://handle_test"}, [](exchange) {}).value();
    channel calls = channel::connect(ctx, "local://handle_test").value();
};

TEST_F(moved_from, using_a_moved_from_channel_ends_the_process_with_a_sentence) {
    const channel elsewhere = std::move(calls);
    std::array<completion, 1> done;
    constexpr const char* sentence = "a channel was used after it was moved from";
    EXPECT_DEATH((void)calls.begin(), sentence);
    EXPECT_DEATH((void)calls.submit({}, 0), sentence);
    EXPECT_DEATH((void)calls.poll(done), sentence);
    EXPECT_DEATH((void)calls.wait(done, std::chrono::milliseconds{1}), sentence);
    EXPECT_DEATH((void)calls.call({}), sentence);
    EXPECT_DEATH((void)calls.slots(), sentence);
    EXPECT_DEATH(calls.close(), sentence);
}

TEST_F(moved_from, using_a_moved_from_server_ends_the_process_with_a_sentence) {
    const server elsewhere = std::move(serving);
    EXPECT_DEATH((void)serving.endpoints(), "a server was used after it was moved from");
    EXPECT_DEATH(serving.stop(), "a server was used after it was moved from");
}

TEST_F(moved_from, using_a_moved_from_context_ends_the_process_with_a_sentence) {
    const context elsewhere = std::move(ctx);
    EXPECT_DEATH((void)ctx.schemes(), "a context was used after it was moved from");
    EXPECT_DEATH((void)channel::connect(ctx, "local://handle_test"), "a context was used after it was moved");
}

TEST_F(moved_from, a_moved_from_object_can_be_assigned_and_destroyed) {
    channel elsewhere = std::move(calls);
    calls = std::move(elsewhere);
    EXPECT_TRUE(calls.connected());
}

}  // namespace
}  // namespace accel
