// SPDX-License-Identifier: Apache-2.0
// Servers that let in clients without a key or certificate.
#include "unit/control_fixture.hpp"

namespace accel::core::testing {
namespace {

struct anonymous_clients : control_test {
    [[nodiscard]] security_options open_server() const {
        security_options out = folder.server();
        out.anonymous = true;
        return out;
    }
    [[nodiscard]] security_options nobody() const {
        security_options out;
        out.server_key = folder.file("server.pub");
        return out;
    }
    key_folder folder;
};

/// Which options a refusal names.
std::string missing_at_server(const security_options& options) {
    const auto loaded = live_security::of_server(options);
    return loaded.ok() ? "" : loaded.error().message;
}

TEST_F(anonymous_clients, a_server_that_does_not_want_them_refuses_them) {
    listen(folder.server());
    const auto refused = open(keys(nobody()), wish());
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("anonymous=true"), std::string::npos) << refused.error().message;
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(anonymous_clients, an_insecure_client_learns_what_is_enough) {
    listen(open_server());
    const auto refused = open(keys(insecure()), wish());
    ASSERT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("set server_key or ca_file"), std::string::npos) << refused.error().message;
}

TEST_F(anonymous_clients, limits_count_them_by_address_and_known_clients_by_name) {
    listen(open_server());
    ASSERT_TRUE(open(keys(nobody()), wish()).ok());
    EXPECT_EQ(host.last_client().name, "");
    EXPECT_EQ(host.last_client().account(), "127.0.0.1");
    ASSERT_TRUE(open(keys(folder.client()), wish()).ok());
    EXPECT_EQ(host.last_client().account(), folder.key("client"));
}

TEST_F(anonymous_clients, a_removed_key_ends_its_sessions_and_no_others) {
    constexpr nanoseconds never_late = 30s;
    listen(open_server(), never_late);
    const auto known_watch = std::make_shared<session_watch>();
    ASSERT_TRUE(open(keys(nobody()), wish(never_late)).ok());
    const auto known = context->control().open_session(own_loopback(), server->port(), keys(folder.client()),
                                                       wish(never_late), known_watch, deadline_after(patience));
    ASSERT_TRUE(known.ok()) << known.error().message;
    folder.authorize({});
    ASSERT_TRUE(security->reload().ok());
    server->wake();
    EXPECT_TRUE(eventually(patience, [&] { return known_watch->ended() != status::ok; }));
    EXPECT_EQ(open(keys(folder.client()), wish(never_late)).code(), status::unauthorized);
    ASSERT_TRUE(open(keys(nobody()), wish(never_late)).ok());
    EXPECT_EQ(watch->ended(), status::ok);
}

TEST_F(anonymous_clients, a_server_that_knows_nobody_takes_known_clients_for_anonymous) {
    security_options options = open_server();
    options.authorized_keys.clear();
    listen(options);
    ASSERT_TRUE(open(keys(folder.client()), wish()).ok());
    EXPECT_EQ(host.last_client().name, "");
}

TEST_F(anonymous_clients, a_server_without_trusted_clients_has_to_say_that_it_wants_all) {
    security_options pinned;
    pinned.key_file = folder.file("server.key");
    EXPECT_NE(missing_at_server(pinned).find("anonymous=true"), std::string::npos) << missing_at_server(pinned);
    security_options certified = pinned;
    certified.cert_file = folder.file("server.pem");
    EXPECT_EQ(live_security::of_server(certified).code(), status::invalid_argument);
    EXPECT_NE(missing_at_server(certified).find("anonymous=true"), std::string::npos) << missing_at_server(certified);
    security_options keyless;
    keyless.anonymous = true;
    EXPECT_EQ(live_security::of_server(keyless).code(), status::unauthorized) << "it has no key of its own";
    keyless.ca_file = folder.file("ca.pem");
    EXPECT_EQ(live_security::of_server(keyless).code(), status::invalid_argument);
}

TEST_F(anonymous_clients, a_client_has_a_certificate_with_its_key_or_neither) {
    security_options half;
    half.ca_file = folder.file("ca.pem");
    half.key_file = folder.file("client.key");
    EXPECT_EQ(load_client_security(half).code(), status::invalid_argument);
    half.cert_file = std::exchange(half.key_file, {});
    EXPECT_EQ(load_client_security(half).code(), status::invalid_argument);
    security_options blind;
    blind.key_file = folder.file("client.key");
    EXPECT_EQ(load_client_security(blind).code(), status::unauthorized) << "it would take any server";
}

}  // namespace
}  // namespace accel::core::testing
