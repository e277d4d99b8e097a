// SPDX-License-Identifier: Apache-2.0
// Where a server listens, how a client finds it, and what is said when a URI is wrong.
#include "loopback.hpp"
#include "rig.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace accel::tests {
namespace {

class listening : public on_every_backend {};

bool usable(const context& ctx, const std::string& scheme) {
    const auto all = ctx.schemes();
    const auto found = std::ranges::find(all, scheme, &scheme_report::scheme);
    EXPECT_NE(found, all.end()) << scheme;
    EXPECT_TRUE(found == all.end() || found->reason.size() > 10) << scheme << ": " << found->reason;
    return found != all.end() && found->usable;
}

TEST_P(listening, a_server_listens_on_several_uris_with_one_handler) {
    context ctx = quiet_context();
    EXPECT_TRUE(usable(ctx, GetParam().scheme));
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

/// Also where the server listens on every address, at which nobody can connect. The client brings its keys alone.
TEST_P(listening, endpoints_can_be_connected_to_as_they_are) {
    context ctx = quiet_context();
    std::vector<std::string> uris{GetParam().listen_uri()};
    const std::string& at = uris.front();
    if (at.ends_with(":0")) {
        for (const char* host : {"*", "0.0.0.0", "0", "localhost"})
            uris.push_back(GetParam().scheme + "://" + host + ":0");
        for (const char* host : {"[::]", "[0::0]", "[::1]"})
            if (has_ipv6()) uris.push_back(GetParam().scheme + "://" + host + ":0");
    }
    channel_options keys_alone;
    keys_alone.security = calm_client().security;
    keys_alone.connect_timeout = patience(10s);
    for (const std::string& uri : uris) {
        SCOPED_TRACE(uri);
        auto served = server::listen(ctx, uri, echo, calm_server());
        ASSERT_TRUE(served) << served.error().message;
        ASSERT_EQ(served->endpoints().size(), 1U);
        const std::string endpoint = served->endpoints().front();
        auto connected = channel::connect(ctx, endpoint, keys_alone);
        ASSERT_TRUE(connected) << endpoint << ": " << connected.error().message;
        EXPECT_TRUE(connected->call({})) << endpoint;
        EXPECT_EQ(connected->endpoint(), endpoint);
    }
}

TEST_P(listening, a_server_listens_on_all_uris_or_none) {
    rig r(GetParam());
    const std::string fresh = GetParam().listen_uri();
    server_options options = calm_server();
    options.drain_timeout = std::chrono::hours{1};  // a server that has never listened has nothing to drain
    for (const std::uint32_t workers : {1U, 0U}) {
        options.workers = workers;
        const auto second = server::listen(r.ctx(), {fresh, r.uri()}, echo, options);
        ASSERT_FALSE(second) << r.uri() << " is taken";
        EXPECT_GT(second.error().message.size(), 20U) << second.error().message;
    }
    if (!GetParam().network) {
        channel_options brief = calm_client();
        brief.connect_timeout = 100ms;
        EXPECT_FALSE(channel::connect(r.ctx(), fresh, brief)) << "none of them may be left listening";
    }
    const auto third = server::listen(r.ctx(), {fresh}, echo, calm_server());
    EXPECT_TRUE(third) << third.error().message;
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

template <class Made>
error why(const Made& made) {
    return made ? error{} : made.error();
}

/// By either end, in a sentence with these words.
TEST_P(listening, wrong_uris_are_refused) {
    struct row {
        bool serves;
        std::vector<std::string> uris;
        status code;
        std::vector<const char*> words;
    };
    rig r(GetParam());
    const std::string here = GetParam().listen_uri();
    const std::string other = GetParam().listen_uri();
    const status wrong = status::invalid_argument;
    const std::vector<row> rows{
        {false, {r.uri() + "?slotz=4"}, wrong, {"slotz", "slots", "request_bytes", "peer_timeout"}},
        {true, {here + "?wrokers=2"}, wrong, {"wrokers", "workers", "max_sessions", "data_port"}},
        {true, {here + "?workers=1", other + "?workers=2"}, wrong, {"workers"}},
        {false, {"pigeon://127.0.0.1:1"}, status::unsupported, {"'pigeon'"}},
        {true, {"pigeon://127.0.0.1:1"}, status::unsupported, {"'pigeon'"}},
        {true, {"auto://127.0.0.1:0"}, wrong, {"a server lists its schemes"}},
        {false, {"127.0.0.1:1"}, wrong, {}},
        {true, {"127.0.0.1:1"}, wrong, {}},
        {false, {""}, wrong, {}},
        {true, {""}, wrong, {}},
        {false, {"tcp://"}, wrong, {}},
        {true, {"tcp://"}, wrong, {}},
        {false, {"tcp://127.0.0.1:99999"}, wrong, {}},
        {true, {"tcp://127.0.0.1:99999"}, wrong, {}},
    };
    for (const row& each : rows) {
        SCOPED_TRACE(each.uris.front());
        for (const bool insecure : {true, false}) {
            server_options serving = calm_server();
            channel_options calling = calm_client();
            if (!insecure) serving.security = calling.security = {};
            const error got = each.serves ? why(server::listen(r.ctx(), each.uris, echo, serving))
                                          : why(channel::connect(r.ctx(), each.uris.front(), calling));
            // Without keys, too: a wrong scheme is not answered with a sentence about keys.
            if (!insecure && each.code != status::unsupported) continue;
            EXPECT_EQ(got.code, each.code) << got.message;
            for (const char* word : each.words) EXPECT_NE(got.message.find(word), std::string::npos) << got.message;
            EXPECT_TRUE(insecure || got.message.find("key") == std::string::npos) << got.message;
        }
    }
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

ACCEL_INSTANTIATE(listening, all_backends);

}  // namespace
}  // namespace accel::tests
