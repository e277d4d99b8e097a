// SPDX-License-Identifier: Apache-2.0
#include "core/client/backoff.hpp"

#include "core/client/reconnector.hpp"
#include "core/internals.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(backoff, pauses_double_up_to_the_longest) {
    backoff pauses(50ms, 300ms);
    for (const nanoseconds each : {50ms, 100ms, 200ms, 300ms, 300ms}) EXPECT_EQ(pauses.take(), each);
}

TEST(backoff, longest_pause_may_be_as_long_as_the_type_allows) {
    backoff pauses(never / 3, never);
    (void)pauses.take();
    (void)pauses.take();
    EXPECT_EQ(pauses.take(), never);
}

TEST(backoff, pauses_go_on_after_a_connection_that_ended_at_once) {
    backoff pauses(50ms, 5s);
    EXPECT_EQ(pauses.take(), 50ms);
    pauses.ended_after(0ms);
    EXPECT_EQ(pauses.take(), 100ms);
    pauses.ended_after(5s - 1ns);
    EXPECT_EQ(pauses.take(), 200ms);
}

TEST(backoff, pauses_begin_anew_after_a_connection_that_lived) {
    backoff pauses(50ms, 5s);
    (void)pauses.take();
    (void)pauses.take();
    pauses.ended_after(5s);
    EXPECT_EQ(pauses.take(), 50ms);
}

TEST(backoff, counts_for_a_channel_that_loses_each_connection_at_once) {
    auto ctx = context::open({.log = log_level::off}).value();
    const std::string uri = "local://backoff-" + std::to_string(::getpid());
    auto there = server::listen(ctx, {uri}, [](exchange) {});
    ASSERT_TRUE(there) << there.error().message;
    channel_options options;
    options.backoff_min = 1ms;
    options.backoff_max = 1h;
    reconnector again(prepare_connection(core::internals::state_of(ctx), uri, options).value());
    const auto start = std::chrono::steady_clock::now();
    constexpr int losses = 8;
    for (int i = 0; i < losses; ++i) {
        again.start();
        while (!again.ready()) std::this_thread::yield();
        auto taken = again.take();
        (void)taken.path->close();
    }
    EXPECT_GE(std::chrono::steady_clock::now() - start, 255ms) << "1 + 2 + 4 + … + 128";
}

}  // namespace
}  // namespace accel::core
