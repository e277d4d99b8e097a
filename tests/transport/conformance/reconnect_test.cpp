// SPDX-License-Identifier: Apache-2.0
// The reconnect option: calls in flight end as lost, later ones work, and nothing is ever sent twice.
#include "peer_process.hpp"
#include "rig.hpp"

#include <memory>

namespace accel::tests {
namespace {

class reconnecting : public on_every_backend {
  protected:
    /// Servers are killed, which their connections tell sooner: no peer that a busy machine holds up is lost.
    static nanoseconds calm() { return patience(5s); }
    static channel_options client_options() {
        channel_options options = calm_client();
        options.peer_timeout = calm();
        options.reconnect = true;
        options.backoff_min = 20ms;
        options.backoff_max = 100ms;
        return options;
    }
};

/// Drives the channel until it is connected again, as an application's loop would.
bool comes_back(checked_channel& client) {
    return eventually(patience(10s), [&] {
        completion none;
        EXPECT_EQ(client.wait({&none, 1}, 5ms), 0U);
        return client->connected();
    });
}

TEST_P(reconnecting, a_channel_reconnects_after_a_restart_on_the_same_port) {
    auto first = std::make_unique<server_process>(GetParam().listen_uri(), "hold", calm());
    const std::string uri = first->uri();
    context ctx = quiet_context();
    auto connected = channel::connect(ctx, uri, client_options());
    ASSERT_TRUE(connected) << connected.error().message;
    checked_channel client(std::move(connected).value());
    for (std::uint64_t i = 0; i < 5; ++i) client.send_seed(100, i);
    const call_id abandoned = client.send_seed(100, 5);
    ASSERT_TRUE(eventually(patience(5s), [&] { return first->requests() == 6; }));
    ASSERT_EQ(client.cancel(abandoned), status::ok);
    completion cancelled = client.next();
    EXPECT_EQ(cancelled.status, status::cancelled);
    cancelled.release();
    EXPECT_EQ(client->statistics().quarantined, 1U);
    first->kill();
    EXPECT_EQ(client.finish(status::peer_lost), 5U);
    const auto call = client.begin();
    EXPECT_EQ(call.code(), status::peer_lost) << "while there is no connection";

    server_process second(uri, "echo", calm());
    ASSERT_EQ(second.uri(), uri);
    ASSERT_TRUE(comes_back(client));
    EXPECT_EQ(client->statistics().reconnects, 1U);
    EXPECT_EQ(client->statistics().quarantined, 0U) << "the late answer will never come";
    EXPECT_EQ(second.requests(), 0U) << "a request was sent again behind the application's back";
    for (std::uint64_t i = 0; i < 50; ++i) {
        client.send_seed(1000, i);
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        ASSERT_TRUE(matches(c.response, i));
    }
    EXPECT_EQ(second.requests(), 50U);
    EXPECT_TRUE(client.all_slots_free());
}

/// The application never polls.
TEST_P(reconnecting, blocking_calls_alone_reconnect_a_channel) {
    auto first = std::make_unique<server_process>(GetParam().listen_uri(), "echo", calm());
    const std::string uri = first->uri();
    context ctx = quiet_context();
    auto client = channel::connect(ctx, uri, client_options());
    ASSERT_TRUE(client) << client.error().message;
    ASSERT_TRUE(client->call({}).ok());
    first->kill();
    EXPECT_TRUE(eventually(until_hung(), [&] { return !client->call({}).ok(); }));
    server_process second(uri, "echo", calm());
    EXPECT_TRUE(eventually(until_hung(), [&] { return client->call({}).ok(); }));
}

/// A response stays until its release, and a begun call begun, whatever happens meanwhile.
TEST_P(reconnecting, a_channel_reconnects_again_and_again) {
    auto server = std::make_unique<server_process>(GetParam().listen_uri(), "echo", calm());
    const std::string uri = server->uri();
    context ctx = quiet_context();
    auto connected = channel::connect(ctx, uri, client_options());
    ASSERT_TRUE(connected) << connected.error().message;
    checked_channel client(std::move(connected).value());
    client.send_seed(30'000, 5);
    completion kept = client.next();
    ASSERT_EQ(kept.status, status::ok);
    const auto begun = client.begin();
    ASSERT_EQ(begun.code(), status::ok);
    for (std::uint64_t round = 0; round < 4; ++round) {
        for (std::uint64_t i = 0; i < client->slots() - 2; ++i) client.send_seed(50'000, i);
        server->kill();
        while (client.open_calls() > 0) {
            const completion c = client.next();
            EXPECT_TRUE(c.status == status::peer_lost || c.status == status::ok) << to_string(c.status);
        }
        // The loss itself may be noticed only now.
        EXPECT_TRUE(eventually(until_hung(), [&] {
            completion none;
            EXPECT_EQ(client.wait({&none, 1}, 1ms), 0U);
            return !client->connected();
        }));
        server = std::make_unique<server_process>(uri, "echo", calm());
        ASSERT_TRUE(comes_back(client));
        for (std::uint64_t i = 0; i < 20; ++i) {
            client.send_seed(30'000, i);
            EXPECT_EQ(client.finish(status::ok), 1U);
        }
        EXPECT_EQ(server->requests(), 20U);
        EXPECT_TRUE(matches(kept.response, 5));
    }
    EXPECT_EQ(client->statistics().reconnects, 4U);
    kept.release();
    EXPECT_EQ(client.release(begun->id), status::ok);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(reconnecting, close_ends_the_attempts) {
    auto server = std::make_unique<server_process>(GetParam().listen_uri(), "echo", calm());
    context ctx = quiet_context();
    auto connected = channel::connect(ctx, server->uri(), client_options());
    ASSERT_TRUE(connected) << connected.error().message;
    server->kill();
    ASSERT_TRUE(eventually(until_hung(), [&] {
        completion none;
        (void)connected->poll({&none, 1});
        return !connected->connected();
    }));
    const auto start = std::chrono::steady_clock::now();
    connected->close();
    EXPECT_LT(std::chrono::steady_clock::now() - start, until_hung());
    const auto call = connected->begin();
    EXPECT_EQ(call.code(), status::closed);
}

ACCEL_INSTANTIATE(reconnecting, network_backends);

}  // namespace
}  // namespace accel::tests
