// SPDX-License-Identifier: Apache-2.0
// A client that does not read what comes, or a large message on its way, holds nobody else up.
#include "rig.hpp"

#include <atomic>
#include <thread>

namespace accel::tests {
namespace {

class readers : public on_every_backend {};

constexpr std::size_t large = 4U << 20;

channel_options large_client() {
    channel_options options = calm_client();
    options.request_bytes = 4096;
    options.response_bytes = large;
    return options;
}

/// Answers as many bytes as the first eight of the request say.
void answer_length(exchange one) {
    std::uint64_t length = 0;
    std::memcpy(&length, copy_of(one.request()).data(), sizeof length);
    fill(one.response().first(length), one.trace_id());
    (void)one.reply(length);
}

call_id ask(checked_channel& client, std::uint64_t length, std::uint64_t seed) {
    return client.send(std::as_bytes(std::span(&length, 1)), {.trace_id = seed});
}

TEST_P(readers, a_slow_reader_does_not_delay_other_clients) {
    rig r(GetParam(), answer_length);
    auto slow = r.connect(large_client());
    auto quick = r.connect();
    for (std::uint64_t i = 0; i < slow->slots(); ++i) ask(slow, large, i);
    for (std::uint64_t i = 0; i < 200; ++i) {
        ask(quick, 100, i);
        const completion c = quick.next(patience(2s));
        ASSERT_EQ(c.status, status::ok);
        ASSERT_TRUE(matches(c.response, i));
    }
    for (std::uint32_t i = 0; i < slow->slots(); ++i) {
        const completion c = slow.next();
        ASSERT_EQ(c.status, status::ok);
        ASSERT_EQ(c.response.size(), large);
        ASSERT_TRUE(matches(c.response, c.trace_id));
    }
}

TEST_P(readers, a_slow_server_gets_every_request_whole) {
    std::atomic<unsigned> wrong{0};
    rig r(GetParam(), [&](exchange one) {
        std::this_thread::sleep_for(2ms);
        if (!matches(one.request(), one.trace_id())) ++wrong;
        (void)one.reply(0);
    });
    channel_options options = calm_client();
    options.request_bytes = large;
    auto client = r.connect(options);
    for (int round = 0; round < 3; ++round) {
        for (std::uint64_t i = 0; i < client->slots(); ++i) client.send_seed(large - i, i);
        EXPECT_EQ(client.finish(status::ok), client->slots());
    }
    EXPECT_EQ(wrong, 0U);
}

ACCEL_INSTANTIATE(readers, all_backends);

}  // namespace
}  // namespace accel::tests
