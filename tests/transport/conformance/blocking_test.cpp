// SPDX-License-Identifier: Apache-2.0
// The blocking call by itself. (random_test.cpp has it among others.)
#include "rig.hpp"

#include <atomic>
#include <vector>

namespace accel::tests {
namespace {

class blocking : public on_every_backend {};

/// The application never polls.
TEST_P(blocking, slots_are_reused_after_late_answers) {
    held_exchanges held;
    std::atomic<int> requests{0};
    rig r(GetParam(), [&](exchange one) { requests++ == 0 ? held.keeper()(std::move(one)) : echo(std::move(one)); });
    channel_options options = calm_client();
    options.slots = 1;
    auto client = r.connect(options);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(client->call({}, {.timeout = 100ms}).code(), status::timed_out);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
    EXPECT_EQ(client->call({}).code(), status::again);
    (void)reaches_its_handler(r, held);
    held.clear();
    EXPECT_TRUE(eventually(until_hung(), [&] { return client->call({}).ok(); }));
}

TEST_P(blocking, a_response_owns_its_slot) {
    rig r(GetParam());
    channel_options options = calm_client();
    options.slots = 2;
    auto client = r.connect(options);
    std::vector<std::byte> request(100);
    fill(request, 1);
    auto first = client->call(request);
    ASSERT_TRUE(first);
    completion kept = std::move(first).value();
    fill(request, 2);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(client->call(request));
    EXPECT_TRUE(matches(kept.response, 1));
    kept = client->call(request).value();
    EXPECT_TRUE(matches(kept.response, 2));
    ASSERT_TRUE(client->call(request)) << "assigning gave the first slot back";
}

ACCEL_INSTANTIATE(blocking, all_backends);

}  // namespace
}  // namespace accel::tests
