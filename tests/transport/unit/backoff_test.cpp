// SPDX-License-Identifier: Apache-2.0
#include "core/client/backoff.hpp"

#include "core/client/reconnector.hpp"
#include "core/internals.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(backoff, pauses_double_up_to_the_longest_and_begin_anew_after_a_connection_that_lived) {
    const std::pair<nanoseconds, nanoseconds> limits[] = {
        {50ms, 300ms}, {50ms, 5s}, {1s, 1s}, {1ns, never}, {never / 3, never}};
    for (const auto& [shortest, longest] : limits) {
        std::mt19937 random(1);
        backoff pauses(shortest, longest);
        nanoseconds expected = shortest;
        for (int i = 0; i < 5'000; ++i) {
            ASSERT_EQ(pauses.coming(), expected) << "step " << i << ", longest " << longest.count();
            const auto what = random() % 400;
            if (what == 0) {
                pauses.ended_after(longest);
                expected = shortest;
            } else if (what < 50) {
                pauses.ended_after(what < 25 ? 0ns : longest - 1ns);
            } else {
                ASSERT_EQ(pauses.take(), expected);
                expected = expected > longest - expected ? longest : 2 * expected;
            }
        }
    }
}

TEST(backoff, counts_for_a_channel_that_loses_each_connection_at_once) {
    auto ctx = context::open({.log = log_level::off}).value();
    const std::string uri = "local://backoff-" + std::to_string(::getpid());
    auto there = server::listen(ctx, {uri}, [](exchange) {});
    ASSERT_TRUE(there) << there.error().message;
    channel_options options;
    options.backoff_min = 1ms;
    options.backoff_max = 1h;
    reconnector again(
        prepare_connection(core::internals::state_of(ctx), parse_client_uri(uri).value(), options).value());
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
