// SPDX-License-Identifier: Apache-2.0
// Peers of different protocol versions, and the numbers of targets.
#include "core/client/connect.hpp"
#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/control/session.hpp"
#include "core/internals.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

TEST(session_version, a_client_of_another_version_is_refused) {
    context ctx = context::open({.log = log_level::off}).value();
    server_options options;
    options.security.insecure = true;
    const auto nobody = [](exchange one) { (void)one.reply(std::size_t{0}); };
    const accel::server server = accel::server::listen(ctx, {"tcp://127.0.0.1:0"}, nobody, options).value();
    channel_options asked;
    asked.security.insecure = true;
    const auto& state = internals::state_of(ctx);
    const connect_request wanted =
        prepare_connection(state, parse_client_uri(server.endpoints().front()).value(), asked).value();
    const auto grant = [&](std::uint16_t version) {
        session_request request;
        request.version = version;
        request.scheme = "tcp";
        request.wanted = {1, 100, 100};
        request.peer_timeout = 5s;
        request.description = {std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}};
        return state->control().open_session("127.0.0.1", wanted.peer.port, wanted.security, request,
                                             std::make_shared<session_watch>(), deadline_after(10s));
    };
    for (const std::uint16_t version : std::vector<std::uint16_t>{0, 2, 0x101, 0xffff}) {
        const auto refused = grant(version);
        ASSERT_EQ(refused.code(), status::version_mismatch) << version;
        EXPECT_EQ(refused.error().message,
                  "this server speaks version 1 of the protocol, but the client speaks version " +
                      std::to_string(version) + "; update the older end");
    }
    EXPECT_EQ(server.statistics().sessions_refused, 4U);
    EXPECT_TRUE(grant(protocol_version).ok()) << "over the same connection";
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

}  // namespace
}  // namespace accel::core
