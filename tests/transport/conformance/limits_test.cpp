// SPDX-License-Identifier: Apache-2.0
// Limits of a server, each with its typed refusal and a sentence.
#include "rig.hpp"

namespace accel::tests {
namespace {

class limits : public on_every_backend {};

void expect_refusal(const result<channel>& connected, status expected) {
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.code(), expected) << connected.error().message;
    EXPECT_GT(connected.error().message.size(), 20U) << "a sentence, please: " << connected.error().message;
}

TEST_P(limits, max_request_and_response_bytes_refuse_longer_messages) {
    server_options options = calm_server();
    options.max_request_bytes = 10'000;
    options.max_response_bytes = 20'000;
    rig r(GetParam(), echo, options);
    channel_options client = calm_client();
    client.request_bytes = 10'001;
    client.response_bytes = 20'000;
    expect_refusal(r.try_connect(client), status::message_too_large);
    client.request_bytes = 10'000;
    client.response_bytes = 20'001;
    expect_refusal(r.try_connect(client), status::message_too_large);
    client.response_bytes = 20'000;
    auto connected = r.connect(client);
    EXPECT_EQ(connected->max_request_bytes(), 10'000U);
    EXPECT_EQ(connected->max_response_bytes(), 20'000U);
    EXPECT_EQ(r.served().statistics().sessions_refused, 2U);
}

TEST_P(limits, max_slots_refuses_more_slots) {
    server_options options = calm_server();
    options.max_slots = 4;
    rig r(GetParam(), echo, options);
    channel_options client = calm_client();
    client.slots = 5;
    expect_refusal(r.try_connect(client), status::overloaded);
    client.slots = 4;
    auto connected = r.connect(client);
    EXPECT_EQ(connected->slots(), 4U);
    EXPECT_TRUE(connected.all_slots_free());
}

TEST_P(limits, max_exchanges_refuses_more_requests) {
    held_exchanges held;
    server_options options = calm_server();
    options.max_exchanges = 3;
    rig r(GetParam(), held.keeper(), options);
    auto client = r.connect();
    for (std::uint64_t i = 0; i < 5; ++i) client.send_seed(10, i);
    for (int i = 0; i < 2; ++i) {
        const completion refused = client.next();
        EXPECT_EQ(refused.status, status::overloaded);
        EXPECT_GE(refused.trace_id, 3U);
        EXPECT_EQ(client.release(refused.id), status::ok);
    }
    EXPECT_EQ(r.served().statistics().overloaded, 2U);
    for (int i = 0; i < 3; ++i) echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 3U);
    for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(10, i);
    for (int i = 0; i < 3; ++i) echo(held.take());
    EXPECT_EQ(client.finish(status::ok), 3U);
}

TEST_P(limits, senseless_options_are_refused) {
    rig r(GetParam());
    const auto refused = [&](auto change) {
        channel_options options = calm_client();
        change(options);
        const auto connected = r.try_connect(options);
        return connected.code();
    };
    EXPECT_EQ(refused([](channel_options& o) { o.slots = 0; }), status::invalid_argument);
    EXPECT_EQ(refused([](channel_options& o) { o.slots = 65'537; }), status::invalid_argument);
    EXPECT_EQ(refused([](channel_options& o) { o.request_bytes = (std::size_t{1} << 30) + 1; }),
              status::invalid_argument);
    EXPECT_EQ(refused([](channel_options& o) { o.response_bytes = ~std::size_t{0}; }), status::invalid_argument);
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
