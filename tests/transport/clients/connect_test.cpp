// SPDX-License-Identifier: Apache-2.0
// The first connect: tried again, several hosts; and the event that tells of a reconnect.
#include "client_rig.hpp"

#include <atomic>

namespace accel::tests {
namespace {

class connecting : public client_rig {
  protected:
    /// An endpoint where nobody listens any more.
    [[nodiscard]] std::string abandoned(std::string_view name) {
        server gone = serve(place(name));
        return where(gone);
    }
    [[nodiscard]] static std::string ask(channel& client) {
        auto answer = client.call({});
        return answer ? text_of(answer->response) : answer.error().message;
    }
};

TEST_P(connecting, connect_tries_once_without_connect_retry) {
    const auto failed = channel::connect(ctx, abandoned("gone"), client_options());
    ASSERT_EQ(failed.code(), status::peer_lost);
    EXPECT_EQ(failed.error().message.find("tried"), std::string::npos) << failed.error().message;
}

TEST_P(connecting, connect_retries_until_the_server_listens) {
    const std::string uri = abandoned("later");
    std::optional<server> late;
    std::thread starter([&] {
        std::this_thread::sleep_for(300ms);
        late.emplace(serve(uri));
    });
    const auto client = channel::connect(ctx, uri + "?connect_retry=20s", client_options());
    starter.join();
    EXPECT_TRUE(client) << client.error().message;
}

TEST_P(connecting, the_error_tells_the_number_of_tries) {
    channel_options options = client_options();
    options.connect_retry = 1s;  // a port that refuses takes half of it
    const auto start = std::chrono::steady_clock::now();
    const auto failed = channel::connect(ctx, abandoned("never"), options);
    const auto spent = std::chrono::steady_clock::now() - start;
    ASSERT_EQ(failed.code(), status::peer_lost);
    EXPECT_NE(failed.error().message.find("(tried "), std::string::npos) << failed.error().message;
    EXPECT_NE(failed.error().message.find(" times in "), std::string::npos) << failed.error().message;
    EXPECT_EQ(failed.error().message.find("tried 1 times"), std::string::npos) << failed.error().message;
    EXPECT_GE(spent, 1s);
    EXPECT_LT(spent, patience(30s));
}

TEST_P(connecting, a_mistake_is_not_tried_again) {
    const auto start = std::chrono::steady_clock::now();
    const server there = serve(place("mistake"));
    EXPECT_EQ(channel::connect(ctx, where(there) + "?connect_retry=30s&slotz=4", client_options()).code(),
              status::invalid_argument);
    EXPECT_EQ(channel::connect(ctx, "pigeon://a:1?connect_retry=30s", client_options()).code(), status::unsupported);
    EXPECT_EQ(channel::connect(ctx, where(there) + "?connect_retry=-1s", client_options()).code(),
              status::invalid_argument);
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(25s));
    const auto refused =
        channel::connect(ctx, where(there) + "?connect_retry=30s&slots=1&request_bytes=65M", client_options());
    EXPECT_EQ(refused.code(), status::message_too_large);
    EXPECT_EQ(refused.error().message.find("tried"), std::string::npos) << refused.error().message;
}

TEST_P(connecting, takes_the_first_host_that_answers) {
    const server first = serve(place("a"), names_itself("first"));
    const server second = serve(place("b"), names_itself("second"));
    auto in_order = channel::connect(ctx, joined({where(first), where(second)}), client_options());
    ASSERT_TRUE(in_order) << in_order.error().message;
    EXPECT_EQ(ask(*in_order), "first");
    EXPECT_EQ(in_order->endpoint(), where(first));
    auto past_one = channel::connect(ctx, joined({abandoned("c"), where(second)}), client_options());
    ASSERT_TRUE(past_one) << past_one.error().message;
    EXPECT_EQ(ask(*past_one), "second");
    EXPECT_EQ(past_one->endpoint(), where(second));
}

TEST_P(connecting, an_error_names_every_host) {
    const std::string one = abandoned("one");
    const std::string two = abandoned("two");
    const auto failed = channel::connect(ctx, joined({one, two}), client_options());
    ASSERT_EQ(failed.code(), status::peer_lost);
    EXPECT_NE(failed.error().message.find("any of 2 hosts"), std::string::npos) << failed.error().message;
    EXPECT_NE(failed.error().message.find(one.substr(one.find("://") + 3)), std::string::npos);
    EXPECT_NE(failed.error().message.find(two.substr(two.find("://") + 3)), std::string::npos);
}

/// Polls until the channel tells of something.
channel_event next_event(channel& client) {
    channel_event seen = channel_event::none;
    (void)eventually(patience(10s), [&] {
        (void)client.poll({});
        seen = client.take_event();
        return seen != channel_event::none;
    });
    return seen;
}

/// Whether they are read each time or not.
TEST_P(connecting, events_report_a_loss_and_a_reconnect_once) {
    std::optional<server> there(serve(place("event")));
    const std::string uri = where(*there);
    channel_options options = client_options();
    options.reconnect = true;
    auto client = channel::connect(ctx, uri, options);
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ(client->take_event(), channel_event::none);
    const auto expect_event = [&](channel_event expected) {
        EXPECT_EQ(next_event(*client), expected);
        EXPECT_EQ(client->take_event(), channel_event::none);
    };
    std::uint64_t round = 0;
    for (const bool reads : {true, false, false}) {
        SCOPED_TRACE(++round);
        there.reset();
        ASSERT_TRUE(eventually(patience(10s), [&] { return client->poll({}) == 0 && !client->connected(); }));
        if (reads) expect_event(channel_event::lost);
        there.emplace(serve(uri));
        ASSERT_TRUE(eventually(patience(10s), [&] { return client->poll({}) == 0 && client->connected(); }));
        EXPECT_EQ(client->statistics().reconnects, round);
        if (reads) expect_event(channel_event::reconnected);
        EXPECT_TRUE(client->call({}));
    }
    EXPECT_EQ(client->take_event(), channel_event::lost);
    expect_event(channel_event::reconnected);  // two losses that nobody asked about
    client->close();
    EXPECT_EQ(client->take_event(), channel_event::none) << "it was closed by its owner";
}

TEST_P(connecting, a_reconnect_finds_another_host) {
    std::optional<server> first(serve(place("d"), names_itself("first")));
    const server second = serve(place("e"), names_itself("second"));
    channel_options options = client_options();
    options.reconnect = true;
    auto client = channel::connect(ctx, joined({where(*first), where(second)}), options);
    ASSERT_TRUE(client) << client.error().message;
    ASSERT_EQ(ask(*client), "first");
    first.reset();
    EXPECT_EQ(next_event(*client), channel_event::lost);
    EXPECT_EQ(next_event(*client), channel_event::reconnected);
    EXPECT_EQ(ask(*client), "second");
    EXPECT_EQ(client->endpoint(), where(second));
}

ACCEL_OVER_EVERY_TRANSPORT(connecting);

TEST(hosts, only_clients_take_lists_of_a_sane_length) {
    auto ctx = context::open({.log = log_level::off}).value();
    const auto refused = server::listen(ctx, {"tcp://127.0.0.1:0,127.0.0.1:0?insecure=true"}, echo_back);
    ASSERT_EQ(refused.code(), status::invalid_argument);
    EXPECT_NE(refused.error().message.find("give a server several URIs"), std::string::npos);
    std::string many = "tcp://a:1";
    for (int i = 0; i < 64; ++i) many += ",a:1";
    for (const std::string& bad : {std::string{"tcp://a:1,?insecure=true"}, std::string{"tcp://,a:1"}, many,
                                   std::string{"tcp://a:1,b"}, std::string{"tcp://a:1,b:2:3"}})
        EXPECT_EQ(channel::connect(ctx, bad).code(), status::invalid_argument) << bad;
}

}  // namespace
}  // namespace accel::tests
