// SPDX-License-Identifier: Apache-2.0
// Limits of a server, each with its typed refusal and a sentence.
#include "rig.hpp"

namespace accel::tests {
namespace {

class limits : public on_every_backend {};

TEST_P(limits, a_channel_gets_what_it_asks_for_or_a_typed_refusal) {
    server_options options = calm_server();
    options.max_slots = 4;
    options.max_request_bytes = 10'000;
    options.max_response_bytes = 20'000;
    rig r(GetParam(), echo, options);
    constexpr std::size_t most = std::size_t{1} << 30;
    struct wish {
        std::uint32_t slots;
        std::size_t request_bytes;
        std::size_t response_bytes;
        status answer;
    };
    std::uint64_t refused = 0;
    for (const wish& each :
         {wish{4, 10'000, 20'000, status::ok}, wish{5, 10'000, 20'000, status::overloaded},
          wish{4, 10'001, 20'000, status::message_too_large}, wish{4, 10'000, 20'001, status::message_too_large},
          wish{1, 1, 1, status::ok}, wish{65'536, 1, 1, status::overloaded},
          wish{1, most, 1, status::message_too_large}, wish{1, 1, most, status::message_too_large},
          wish{0, 1, 1, status::invalid_argument}, wish{65'537, 1, 1, status::invalid_argument},
          wish{1, most + 1, 1, status::invalid_argument}, wish{1, 1, most + 1, status::invalid_argument},
          wish{1, 1, ~std::size_t{0}, status::invalid_argument}}) {
        SCOPED_TRACE(::testing::Message() << each.slots << ' ' << each.request_bytes << ' ' << each.response_bytes);
        channel_options client = calm_client();
        client.slots = each.slots;
        client.request_bytes = each.request_bytes;
        client.response_bytes = each.response_bytes;
        auto connected = r.try_connect(client);
        ASSERT_EQ(connected.code(), each.answer);
        if (!connected) {
            EXPECT_GT(connected.error().message.size(), 20U) << connected.error().message;
            refused += each.answer == status::invalid_argument ? 0U : 1U;
            continue;
        }
        EXPECT_EQ(connected->slots(), each.slots);
        EXPECT_EQ(connected->max_request_bytes(), each.request_bytes);
        EXPECT_EQ(connected->max_response_bytes(), each.response_bytes);
    }
    EXPECT_EQ(r.served().statistics().sessions_refused, refused);
}

/// Of all clients together. What is refused is not counted, and each answer gives room for one more.
TEST_P(limits, max_exchanges_refuses_more_requests) {
    held_exchanges held;
    server_options options = calm_server();
    options.max_exchanges = 3;
    rig r(GetParam(), held.keeper(), options);
    auto first = r.connect();
    auto second = r.connect();
    first.send_seed(10, 0);
    ASSERT_TRUE(held.wait_for(1));
    for (std::uint64_t i = 1; i < 5; ++i) second.send_seed(10, i);
    const auto expect_end = [](checked_channel& of, status why) {
        completion ended = of.next();
        EXPECT_EQ(ended.status, why);
        return ended.trace_id;
    };
    for (int i = 0; i < 2; ++i) EXPECT_GE(expect_end(second, status::overloaded), 3U);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        exchange one = held.take();
        checked_channel& whose = one.trace_id() == 0 || one.trace_id() > 4 ? first : second;
        echo(std::move(one));
        (void)expect_end(whose, status::ok);
        first.send_seed(10, 4 + round);
        ASSERT_TRUE(held.wait_for(3));
        second.send_seed(10, 10);
        (void)expect_end(second, status::overloaded);
        EXPECT_EQ(r.served().statistics().overloaded, 2 + round);
    }
    for (int i = 0; i < 3; ++i) echo(held.take());
    EXPECT_EQ(first.finish(status::ok) + second.finish(status::ok), 3U);
}

TEST_P(limits, connect_fails_soon_when_nothing_listens) {
    context ctx = quiet_context();
    channel_options options = calm_client();
    options.connect_timeout = patience(20s);
    std::string uri = GetParam().listen_uri();
    if (uri.ends_with(":0")) uri = GetParam().scheme + "://127.0.0.1:1";
    const auto start = std::chrono::steady_clock::now();
    const auto connected = channel::connect(ctx, uri, options);
    ASSERT_EQ(connected.code(), status::peer_lost);
    EXPECT_LT(std::chrono::steady_clock::now() - start, options.connect_timeout / 2);
}

ACCEL_INSTANTIATE(limits, all_backends);

}  // namespace
}  // namespace accel::tests
