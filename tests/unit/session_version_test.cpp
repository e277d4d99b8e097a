// SPDX-License-Identifier: Apache-2.0
// Peers of different protocol versions: what one does not know is not used.
#include "core/client/channel_core.hpp"
#include "core/client/connect.hpp"
#include "core/control/control_client.hpp"
#include "core/control/session.hpp"
#include "core/server/target_table.hpp"
#include "unit/control_fixture.hpp"

#include <accel_transport/accel_transport.hpp>

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

struct session_versions : ::testing::Test {
    session_versions() {
        server_options options;
        options.security.insecure = true;
        server = std::make_unique<accel::server>(
            accel::server::listen(ctx, {"tcp://127.0.0.1:0"}, service_table{{{"model", serve}}, serve}, options)
                .value());
        channel_options asked;
        asked.security.insecure = true;
        wanted = std::make_unique<connect_request>(
            prepare_connection(ctx.state(), server->endpoints().front(), asked).value());
    }
    static void serve(exchange one) { (void)one.reply(std::size_t{0}); }
    /// What the server grants a client that speaks these.
    result<session_grant> grant(std::uint16_t lowest, std::uint16_t highest) {
        session_request request;
        request.version_min = lowest;
        request.version_max = highest;
        request.scheme = "tcp";
        request.wanted = {1, 100, 100};
        request.peer_timeout = 5s;
        request.description = {std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0}};
        return ctx.state()->control().open_session("127.0.0.1", wanted->peer.port, wanted->security, request,
                                                   std::make_shared<session_watch>(), deadline_after(10s));
    }
    context ctx = context::open({.log = log_level::off}).value();
    std::unique_ptr<accel::server> server;
    std::unique_ptr<connect_request> wanted;
};

TEST_F(session_versions, the_highest_common_version_is_granted) {
    EXPECT_EQ(grant(1, 1).value().version, 1) << "an old client";
    EXPECT_EQ(grant(1, 2).value().version, 2);
    EXPECT_EQ(grant(2, 7).value().version, session_version::newest) << "a client of the future";
    const auto refused = grant(session_version::newest + 1, 9);
    ASSERT_EQ(refused.code(), status::version_mismatch);
    EXPECT_NE(refused.error().message.find("1 to 5"), std::string::npos) << refused.error().message;
}

TEST_F(session_versions, an_old_client_takes_no_parts_and_an_old_server_sends_none) {
    // A client of today, over a session as an older server would have granted it, and of today.
    for (const std::uint16_t version : {session_version::traces, session_version::parts}) {
        channel_connection made = open_connection(*wanted).value();
        made.session.version = version;
        channel_core client(*wanted, std::move(made));
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        const status expected = version < session_version::parts ? status::unsupported : status::ok;
        EXPECT_EQ(client.submit(call.id, 1, {.parts = 1}), expected);
        completion done;
        if (expected == status::ok) {
            ASSERT_EQ(client.wait({&done, 1}, 10s), 1U);
            EXPECT_EQ(done.status, status::ok);
        }
        EXPECT_EQ(client.release(call.id), status::ok);
    }
}

TEST_F(session_versions, an_old_server_is_not_asked_for_targets) {
    const auto old = resolve_target(*wanted, session_version::oldest, "model");
    ASSERT_EQ(old.code(), status::unsupported);
    EXPECT_NE(old.error().message.find("version 1"), std::string::npos) << old.error().message;
    EXPECT_EQ(resolve_target(*wanted, session_version::targets, "model").value(), target_of("model"));
}

TEST_F(session_versions, an_old_server_is_not_told_of_cancelled_calls) {
    client_session session;
    session.watch = std::make_shared<session_watch>(4);
    session.version = session_version::targets;
    cancel_call(*wanted, session, {1, 1});
    EXPECT_FALSE(session.watch->cancels.pending());
    session.version = session_version::cancels;
    cancel_call(*wanted, session, {1, 1});
    EXPECT_TRUE(session.watch->cancels.pending());
}

TEST(target_names, numbers_are_hashes_that_never_change) {
    EXPECT_EQ(target_of("a").number, 0xe40c292cU) << "FNV-1a, 32 bits";
    EXPECT_EQ(target_of("foobar").number, 0xbf9cf968U);
    EXPECT_EQ(target_of(std::string("foobar")), target_of("foobar")) << "both ways to give a name";
    EXPECT_NE(target_of("").number, 0U);
    EXPECT_TRUE(is_target_name("!~"));
    EXPECT_FALSE(is_target_name("a b"));
    EXPECT_FALSE(is_target_name(std::string(max_target_bytes + 1, 'a')));
}

TEST(target_names, a_table_finds_only_its_own_names) {
    std::vector<named_handler> named;
    int called = -1;
    for (int i = 0; i < 300; ++i)
        named.push_back({"model" + std::to_string(i), [&called, i](exchange) { called = i; }});
    const target_table table(named);
    for (int i = 0; i < 300; ++i) {
        const handler* const found = table.find(target_of("model" + std::to_string(i)).number);
        ASSERT_NE(found, nullptr) << i;
        (*found)(exchange{nullptr});
        EXPECT_EQ(called, i);
    }
    for (const std::uint32_t other : {0U, 1U, ~0U, target_of("model300").number})
        EXPECT_EQ(table.find(other), nullptr) << other;
    EXPECT_EQ(target_table{}.find(1), nullptr);
}

}  // namespace
}  // namespace accel::core
