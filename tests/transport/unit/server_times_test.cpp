// SPDX-License-Identifier: Apache-2.0
// The processor time of a server's workers, which only grows.
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

TEST(server_times, processor_times_never_fall_while_a_server_stops) {
    context ctx = context::open().value();
    server_options options;
    options.workers = 8;
    options.poll = poll_mode::busy;
    auto made = server::listen(
        ctx, {"local://server_times"}, [](exchange request) { (void)request.reply(0); }, options);
    ASSERT_TRUE(made.ok()) << made.error().message;
    server& serving = *made;
    const auto used = [&] {
        const server_statistics seen = serving.statistics();
        return seen.cpu_user + seen.cpu_kernel;
    };
    ASSERT_TRUE(eventually(patience(10s), [&] { return used() > 200ms; }));
    std::atomic<bool> stopped{false};
    std::thread stopping([&] {
        serving.stop();
        stopped = true;
    });
    auto last = used();
    int looks = 0;
    do {
        const auto now = used();
        EXPECT_GE(now, last) << "look " << looks;
        last = now;
        ++looks;
    } while (!stopped && !HasFailure());
    stopping.join();
    EXPECT_GE(used(), last);
}

}  // namespace
}  // namespace accel::tests
