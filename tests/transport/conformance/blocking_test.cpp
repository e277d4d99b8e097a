// SPDX-License-Identifier: Apache-2.0
// The blocking call.
#include "rig.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class blocking : public on_every_backend {};

TEST_P(blocking, answers_with_the_response) {
    rig r(GetParam());
    auto client = r.connect();
    std::vector<std::byte> request(5000);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(effort(500)); ++i) {
        request.resize(mix(i) % 60'000);
        fill(request, i);
        const auto answer = client->call(request);
        ASSERT_TRUE(answer) << answer.error().message;
        ASSERT_EQ(answer.value().bytes().size(), request.size());
        ASSERT_TRUE(matches(answer.value().bytes(), i));
        EXPECT_GT(answer.value().timeline().total, 0ns);
    }
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(blocking, a_failure_carries_the_handlers_words) {
    rig r(GetParam(), [](exchange one) { (void)one.fail(status::application_error, 7, "no such model"); });
    auto client = r.connect();
    const auto answer = client->call({});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.code(), status::application_error);
    EXPECT_NE(answer.error().message.find("no such model"), std::string::npos) << answer.error().message;
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(blocking, times_out) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    const auto start = std::chrono::steady_clock::now();
    const auto answer = client->call({}, {.timeout = 100ms});
    EXPECT_EQ(answer.code(), status::timed_out);
    EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(10s));
    (void)reaches_its_handler(r, held);
    held.clear();
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(blocking, leaves_other_completions_for_poll) {
    rig r(GetParam());
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 4; ++i) client.send_seed(100, i, {.tag = i});
    const auto answer = client->call({});
    ASSERT_TRUE(answer);
    for (std::uint64_t i = 0; i < 4; ++i) {
        const completion c = client.next();
        EXPECT_EQ(c.status, status::ok);
        EXPECT_TRUE(c.tag == i || handlers_on_gpu()) << c.tag;
        EXPECT_TRUE(matches(c.response, c.tag));
        EXPECT_EQ(client.release(c.id), status::ok);
    }
}

/// The application never polls.
TEST_P(blocking, slots_are_reused_after_late_answers) {
    held_exchanges held;
    std::atomic<int> requests{0};
    rig r(GetParam(), [&](exchange one) { requests++ == 0 ? held.keeper()(std::move(one)) : echo(std::move(one)); });
    channel_options options = calm_client();
    options.slots = 1;
    auto client = r.connect(options);
    EXPECT_EQ(client->call({}, {.timeout = 100ms}).code(), status::timed_out);
    EXPECT_EQ(client->call({}).code(), status::again);
    (void)reaches_its_handler(r, held);
    held.clear();
    EXPECT_TRUE(eventually(until_hung(), [&] { return client->call({}).ok(); }));
}

TEST_P(blocking, says_again_when_every_slot_is_taken) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    channel_options options = calm_client();
    options.slots = 1;
    auto client = r.connect(options);
    client.send_seed(10, 1);
    EXPECT_EQ(client->call({}).code(), status::again);
    echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 1U);
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
    response kept = std::move(first).value();
    fill(request, 2);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(client->call(request));
    EXPECT_TRUE(matches(kept.bytes(), 1));
    kept = client->call(request).value();
    EXPECT_TRUE(matches(kept.bytes(), 2));
    ASSERT_TRUE(client->call(request)) << "assigning gave the first slot back";
}

ACCEL_INSTANTIATE(blocking, all_backends);

}  // namespace
}  // namespace accel::tests
