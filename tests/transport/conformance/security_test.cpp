// SPDX-License-Identifier: Apache-2.0
// Who gets in: with the right keys, or without any by name; nobody else, and each refusal in a sentence.
#include "keys.hpp"
#include "loopback.hpp"
#include "rig.hpp"

#include <fstream>
#include <string>
#include <utility>

#include <sys/stat.h>

namespace accel::tests {
namespace {

class security : public on_every_backend {
  protected:
    server_options secured() {
        server_options options = calm_server();
        options.security = keys_.server();
        return options;
    }
    /// A client with these keys; short of time, as a wrong key looks like silence at worst.
    static channel_options client_with(const security_options& keys) {
        channel_options options = calm_client();
        options.connect_timeout = patience(2s);
        options.security = keys;
        return options;
    }
    static void expect_refused(const result<channel>& connected) {
        ASSERT_FALSE(connected);
        EXPECT_TRUE(connected.code() == status::unauthorized || connected.code() == status::timed_out)
            << to_string(connected.code());
        EXPECT_GT(connected.error().message.size(), 20U) << connected.error().message;
    }
    static void expect_served(checked_channel client) {
        for (std::uint64_t i = 0; i < 50; ++i) {
            client.send_seed(mix(i) % 60'000, i);
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            ASSERT_TRUE(matches(c.response, i));
        }
    }
    /// A client that knows the server and has no key.
    security_options nobody() {
        security_options out;
        out.server_key = keys_.path() + "/server.pub";
        return out;
    }
    key_folder keys_;
};

TEST_P(security, only_the_right_keys_get_in) {
    security_options none;
    none.insecure = true;
    security_options stranger = keys_.client();
    stranger.key_file = keys_.make_pair("stranger") + ".key";
    security_options deceived = keys_.client();
    deceived.server_key = keys_.make_pair("other_server") + ".pub";
    rig r(GetParam(), echo, secured());
    for (const auto& [who, wrong] :
         {std::pair{"no keys", none}, std::pair{"an unknown key", stranger}, std::pair{"another server's", deceived}}) {
        SCOPED_TRACE(who);
        expect_refused(r.try_connect(client_with(wrong)));
        EXPECT_EQ(r.served().statistics().sessions_opened, 0U);
    }
    rig plain(GetParam());
    expect_refused(plain.try_connect(client_with(keys_.client())));
    EXPECT_EQ(plain.served().statistics().sessions_opened, 0U);
    expect_served(r.connect(client_with(keys_.client())));
}

TEST_P(security, anonymous_clients_get_in_only_if_the_server_says_so) {
    rig closed(GetParam(), echo, secured());
    const auto refused = closed.try_connect(client_with(nobody()));
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("anonymous=true"), std::string::npos) << refused.error().message;
    EXPECT_EQ(closed.served().statistics().sessions_opened, 0U);

    server_options options = secured();
    options.security.anonymous = true;
    rig open(GetParam(), echo, options);
    expect_served(open.connect(client_with(nobody())));
    expect_served(open.connect(client_with(keys_.client())));
    security_options stranger = keys_.client();
    stranger.key_file = keys_.make_pair("stranger") + ".key";
    expect_refused(open.try_connect(client_with(stranger)));
    security_options deceived = nobody();
    deceived.server_key = keys_.make_pair("other_server") + ".pub";
    expect_refused(open.try_connect(client_with(deceived)));
}

TEST_P(security, anonymous_clients_need_only_the_authority_of_the_server) {
    server_options options = calm_server();
    const auto shows = [&](const std::string& pair) {
        options.security = {.key_file = pair + ".key", .cert_file = pair + ".pem"};
        options.security.anonymous = true;
    };
    const auto trusting = [](const std::string& pair) {
        security_options out;
        out.ca_file = pair + ".pem";
        return client_with(out);
    };
    const std::string here = keys_.certify("here", "IP:" + own_loopback());
    shows(here);
    rig r(GetParam(), echo, options);
    expect_served(r.connect(trusting(here)));
    expect_refused(r.try_connect(trusting(keys_.certify("another", "IP:" + own_loopback()))));

    const std::string elsewhere = keys_.certify("elsewhere", "DNS:elsewhere");
    shows(elsewhere);
    rig other(GetParam(), echo, options);
    expect_refused(other.try_connect(trusting(elsewhere)));
    EXPECT_EQ(other.served().statistics().sessions_opened, 0U);
}

TEST_P(security, keys_may_be_named_in_the_uri) {
    rig r(GetParam(), echo, secured());
    auto connected = channel::connect(
        r.ctx(), r.uri() + "?key_file=" + keys_.path() + "/client.key&server_key=" + keys_.path() + "/server.pub",
        client_with({}));
    ASSERT_TRUE(connected) << connected.error().message;
    EXPECT_TRUE(connected->call({}));
}

TEST_P(security, refuses_ends_without_keys_unless_insecure_is_set) {
    context ctx = quiet_context();
    server_options options = calm_server();
    options.security = {};
    const auto served = server::listen(ctx, {GetParam().listen_uri()}, echo, options);
    ASSERT_FALSE(served);
    EXPECT_EQ(served.code(), status::unauthorized);
    EXPECT_NE(served.error().message.find("insecure"), std::string::npos) << served.error().message;
    EXPECT_NE(served.error().message.find("accel_keys"), std::string::npos) << served.error().message;
    auto by_name = server::listen(ctx, {GetParam().listen_uri() + "?insecure=true"}, echo, options);
    ASSERT_TRUE(by_name) << by_name.error().message;
    const auto connected = channel::connect(ctx, by_name->endpoints().at(0), client_with({}));
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.code(), status::unauthorized);
    auto insecure = channel::connect(ctx, by_name->endpoints().at(0) + "?insecure=true", client_with({}));
    ASSERT_TRUE(insecure) << insecure.error().message;
    EXPECT_TRUE(insecure->call({}));
}

TEST_P(security, two_servers_do_not_share_their_clients) {
    rig first(GetParam(), echo, secured());
    const std::string pair = keys_.make_pair("second_client");
    server_options options = secured();
    options.security.authorized_keys = keys_.authorise("second_authorized", {pair});
    // In the same context.
    auto second = server::listen(first.ctx(), {GetParam().listen_uri()}, echo, options);
    ASSERT_TRUE(second) << second.error().message;
    expect_refused(channel::connect(first.ctx(), second->endpoints().at(0), client_with(keys_.client())));
    security_options right = keys_.client();
    right.key_file = pair + ".key";
    const auto connected = channel::connect(first.ctx(), second->endpoints().at(0), client_with(right));
    EXPECT_TRUE(connected) << connected.error().message;
    expect_refused(first.try_connect(client_with(right)));
}

TEST_P(security, a_key_file_that_others_can_read_or_without_a_key_is_refused) {
    rig r(GetParam(), echo, secured());
    const std::string odd = keys_.path() + "/odd.key";
    std::ofstream(odd) << "not a key\n";
    chmod(odd.c_str(), 0600);
    for (const std::string& file : {odd, keys_.path() + "/missing.key", keys_.path()}) {
        security_options options = keys_.client();
        options.key_file = file;
        EXPECT_FALSE(r.try_connect(client_with(options))) << file;
    }
    server_options options = secured();
    options.security.authorized_keys = odd;
    EXPECT_FALSE(server::listen(r.ctx(), {GetParam().listen_uri()}, echo, options));
    for (const mode_t mode : {0640U, 0604U, 0660U, 0600U}) {
        chmod((keys_.path() + "/client.key").c_str(), mode);
        const auto connected = r.try_connect(client_with(keys_.client()));
        EXPECT_EQ(connected.code(), mode == 0600 ? status::ok : status::unauthorized) << std::oct << mode;
        if (connected) continue;
        EXPECT_NE(connected.error().message.find("chmod"), std::string::npos) << connected.error().message;
    }
}

ACCEL_INSTANTIATE(security, network_backends);

}  // namespace
}  // namespace accel::tests
