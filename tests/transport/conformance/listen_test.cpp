// SPDX-License-Identifier: Apache-2.0
// Where a server listens, how a client finds it, and what is said when a URI is wrong.
#include "rig.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace accel::tests {
namespace {

class listening : public on_every_backend {};

bool usable(const context& ctx, const std::string& scheme) {
    const auto all = ctx.schemes();
    return std::any_of(all.begin(), all.end(),
                       [&](const scheme_report& each) { return each.scheme == scheme && each.usable; });
}

TEST_P(listening, a_server_listens_on_several_uris_with_one_handler) {
    context ctx = quiet_context();
    std::vector<std::string> uris;
    for (const backend_case& one : all_backends()) {
        const bool has_memory = one.scheme != "gdr" || handlers_on_gpu();
        if (has_memory && usable(ctx, one.scheme)) uris.push_back(one.listen_uri());
    }
    uris.push_back(GetParam().listen_uri());
    auto served = server::listen(ctx, uris, echo, calm_server());
    ASSERT_TRUE(served) << served.error().message;
    const auto endpoints = served->endpoints();
    ASSERT_EQ(endpoints.size(), uris.size());
    EXPECT_EQ(std::set<std::string>(endpoints.begin(), endpoints.end()).size(), uris.size());
    std::uint64_t seed = 0;
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
        EXPECT_TRUE(endpoints[i].starts_with(uris[i].substr(0, uris[i].find("://") + 3))) << endpoints[i];
        EXPECT_FALSE(endpoints[i].ends_with(":0")) << endpoints[i];
        auto connected = channel::connect(ctx, endpoints[i], calm_client());
        ASSERT_TRUE(connected) << endpoints[i] << ": " << connected.error().message;
        checked_channel client(std::move(connected).value());
        client.send_seed(1000, ++seed);
        EXPECT_EQ(client.finish(status::ok), 1U);
        EXPECT_EQ(client->scheme(), uris[i].substr(0, uris[i].find("://")));
    }
    EXPECT_EQ(served->statistics().sessions_opened, uris.size());
    EXPECT_EQ(served->statistics().requests, uris.size());
    // A reply is counted once it is sent, which its client may see first.
    EXPECT_TRUE(eventually(patience(1s), [&] { return served->statistics().replies == uris.size(); }));
}

TEST_P(listening, a_server_listens_on_all_uris_or_none) {
    rig r(GetParam());
    const std::string fresh = GetParam().listen_uri();
    const auto second = server::listen(r.ctx(), {fresh, r.uri()}, echo, calm_server());
    ASSERT_FALSE(second) << r.uri() << " is taken";
    EXPECT_GT(second.error().message.size(), 20U) << second.error().message;
    if (!GetParam().network) {
        channel_options options = calm_client();
        options.connect_timeout = 100ms;
        EXPECT_FALSE(channel::connect(r.ctx(), fresh, options)) << "none of them may be left listening";
    }
    const auto third = server::listen(r.ctx(), {fresh}, echo, calm_server());
    EXPECT_TRUE(third) << third.error().message;
}

/// A server that has never listened has nothing to drain.
TEST_P(listening, a_refusal_does_not_wait_for_a_drain) {
    rig r(GetParam());
    server_options options = calm_server();
    options.drain_timeout = std::chrono::hours{1};
    EXPECT_FALSE(server::listen(r.ctx(), {r.uri()}, echo, options)) << r.uri() << " is taken";
    options.workers = 0;
    EXPECT_FALSE(server::listen(r.ctx(), {r.uri()}, echo, options)) << r.uri() << " is taken";
}

TEST_P(listening, an_address_can_be_used_again_after_stop) {
    std::string uri;
    context ctx = quiet_context();
    for (int round = 0; round < 5; ++round) {
        auto served = server::listen(ctx, {std::string_view(round == 0 ? uri = GetParam().listen_uri() : uri)}, echo,
                                     calm_server());
        ASSERT_TRUE(served) << served.error().message;
        uri = served->endpoints().at(0);
        auto connected = channel::connect(ctx, uri, calm_client());
        ASSERT_TRUE(connected) << connected.error().message;
        EXPECT_TRUE(connected->call({}));
    }
}

TEST_P(listening, an_error_for_a_misspelt_key_lists_the_valid_keys) {
    rig r(GetParam());
    const auto client = channel::connect(r.ctx(), r.uri() + "?slotz=4", calm_client());
    ASSERT_FALSE(client);
    EXPECT_EQ(client.code(), status::invalid_argument);
    for (const char* word : {"slotz", "slots", "request_bytes", "peer_timeout"})
        EXPECT_NE(client.error().message.find(word), std::string::npos) << client.error().message;

    const auto served = server::listen(r.ctx(), {GetParam().listen_uri() + "?wrokers=2"}, echo, calm_server());
    ASSERT_FALSE(served);
    EXPECT_EQ(served.code(), status::invalid_argument);
    for (const char* word : {"wrokers", "workers", "max_sessions", "data_port"})
        EXPECT_NE(served.error().message.find(word), std::string::npos) << served.error().message;
}

TEST_P(listening, the_uri_wins_over_the_code) {
    rig r(GetParam());
    channel_options options = calm_client();
    options.slots = 2;
    auto connected = channel::connect(r.ctx(), r.uri() + "?slots=5&request_bytes=2K&poll=block", options);
    ASSERT_TRUE(connected) << connected.error().message;
    EXPECT_EQ(connected->slots(), 5U);
    EXPECT_EQ(connected->max_request_bytes(), 2048U);
}

TEST_P(listening, uris_that_disagree_are_refused) {
    context ctx = quiet_context();
    const auto served = server::listen(
        ctx, {GetParam().listen_uri() + "?workers=1", GetParam().listen_uri() + "?workers=2"}, echo, calm_server());
    ASSERT_FALSE(served);
    EXPECT_EQ(served.code(), status::invalid_argument);
    EXPECT_NE(served.error().message.find("workers"), std::string::npos) << served.error().message;
}

TEST_P(listening, an_unknown_scheme_is_named) {
    context ctx = quiet_context();
    for (const char* uri : {"pigeon://127.0.0.1:1", "127.0.0.1:1", "", "tcp://", "tcp://127.0.0.1:99999"}) {
        const auto client = channel::connect(ctx, uri, calm_client());
        ASSERT_FALSE(client) << uri;
        EXPECT_TRUE(client.code() == status::invalid_argument || client.code() == status::unsupported) << uri;
        EXPECT_FALSE(server::listen(ctx, {std::string_view(uri)}, echo, calm_server())) << uri;
    }
    const auto client = channel::connect(ctx, "pigeon://127.0.0.1:1", calm_client());
    EXPECT_NE(client.error().message.find("pigeon"), std::string::npos) << client.error().message;
}

/// Without keys: a wrong scheme is not answered with a sentence about keys.
TEST_P(listening, wrong_scheme_is_reported_before_missing_keys) {
    context ctx = quiet_context();
    const auto expect = [](const error& got, status code, const char* part) {
        EXPECT_EQ(got.code, code) << got.message;
        EXPECT_NE(got.message.find(part), std::string::npos) << got.message;
        EXPECT_EQ(got.message.find("key"), std::string::npos) << got.message;
    };
    expect(server::listen(ctx, {"http://127.0.0.1:0"}, echo).error(), status::unsupported, "'http'");
    expect(channel::connect(ctx, "http://127.0.0.1:1").error(), status::unsupported, "'http'");
    expect(server::listen(ctx, {"auto://127.0.0.1:0"}, echo).error(), status::invalid_argument,
           "a server lists its schemes");
}

TEST_P(listening, auto_takes_what_the_server_offers_and_says_why) {
    rig r(GetParam());
    const std::string& uri = r.uri();
    auto connected = channel::connect(r.ctx(), "auto" + uri.substr(uri.find("://")), calm_client());
    if (!GetParam().listen_uri().ends_with(":0")) GTEST_SKIP() << "auto:// needs a host and a port, not a name";
    ASSERT_TRUE(connected) << connected.error().message;
    EXPECT_EQ(connected->scheme(), GetParam().scheme);
    EXPECT_GT(connected->why().size(), 10U);
    EXPECT_NE(connected->why().find(GetParam().scheme), std::string::npos) << connected->why();
    EXPECT_TRUE(connected->call({}));
}

TEST_P(listening, the_scheme_is_reported_as_usable) {
    context ctx = quiet_context();
    const auto schemes = ctx.schemes();
    const auto found = std::find_if(schemes.begin(), schemes.end(),
                                    [](const scheme_report& s) { return s.scheme == GetParam().scheme; });
    ASSERT_NE(found, schemes.end());
    EXPECT_TRUE(found->usable) << found->reason;
    EXPECT_GT(found->reason.size(), 10U);
}

ACCEL_INSTANTIATE(listening, all_backends);

}  // namespace
}  // namespace accel::tests
