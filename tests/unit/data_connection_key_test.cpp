// SPDX-License-Identifier: Apache-2.0
// Data connections that are made with the key of their session instead of with certificates.
#include "core/control/data_preamble.hpp"
#include "core/net/socket.hpp"
#include "core/tls/tls_stream.hpp"
#include "unit/control_fixture.hpp"

#include <gtest/gtest.h>
#include <poll.h>

namespace accel::core::testing {
namespace {

using namespace std::chrono_literals;

struct data_connection_key : control_test {
    void SetUp() override {
        folder.authorize({"client", "stranger"});
        listen(folder.server());
        auto granted = open(keys(folder.client()), wish());
        ASSERT_TRUE(granted.ok()) << granted.error().message;
        grant = *granted;
    }

    /// A handshake over a connection of its own, as `who`.
    tls_outcome shake(const std::optional<session_key>& key, std::string_view protocol = data_protocol,
                      const std::string& who = "stranger") {
        socket = connect_raw(server->port());
        auto made = tls_stream::connect(keys(folder.client(who))->keys, socket.get(), own_loopback(), protocol, key);
        EXPECT_TRUE(made.ok());
        tls.emplace(std::move(*made));
        tls_outcome outcome = tls->handshake();
        while (outcome == tls_outcome::wants_read && wait_ready(socket.get(), POLLIN, deadline_after(10s)) == 0)
            outcome = tls->handshake();
        return outcome;
    }
    void say(std::span<const std::byte> bytes) {
        std::size_t count = 0;
        EXPECT_EQ(tls->write(bytes, count), tls_outcome::done);
        EXPECT_EQ(count, bytes.size());
    }
    /// The status of the server's answer, or `ended`.
    std::uint16_t answer_to(std::uint64_t session_id) {
        data_preamble shown;
        shown.session_id = session_id;
        say(std::as_bytes(std::span(&shown, 1)));
        return hear();
    }
    std::uint16_t hear() {
        std::uint16_t code = 0;
        std::size_t count = 0;
        for (;;) {
            const tls_outcome got = tls->read(std::as_writable_bytes(std::span(&code, 1)), count);
            if (got == tls_outcome::done) return code;
            if (got != tls_outcome::wants_read) return ended;
            if (wait_ready(socket.get(), POLLIN, deadline_after(10s)) != 0) return silence;
        }
    }

    static constexpr std::uint16_t ended = 0xffff;    ///< the connection, without an answer
    static constexpr std::uint16_t silence = 0xfffe;  ///< it goes on without one
    key_folder folder;
    session_grant grant;
    unique_fd socket;
    std::optional<tls_stream> tls;
};

TEST_F(data_connection_key, is_enough_for_its_session) {
    ASSERT_EQ(shake(session_key{grant.session_id, grant.token}), tls_outcome::done);
    EXPECT_EQ(tls->session(), grant.session_id);
    EXPECT_EQ(tls->peer_name(), "") << "no certificate was shown";
    EXPECT_EQ(answer_to(grant.session_id), 0);
    EXPECT_EQ(host.taken(), 1U);
}

TEST_F(data_connection_key, opens_no_other_session) {
    auto second = open(keys(folder.client()), wish());
    ASSERT_TRUE(second.ok());
    ASSERT_EQ(shake(session_key{grant.session_id, grant.token}), tls_outcome::done);
    EXPECT_EQ(answer_to(second->session_id), ended);
    EXPECT_EQ(host.taken(), 0U);
}

TEST_F(data_connection_key, makes_nobody_a_client_of_the_control_plane) {
    for (const std::string_view protocol : {control_protocol, data_protocol}) {
        ASSERT_EQ(shake(session_key{grant.session_id, grant.token}, protocol), tls_outcome::done);
        say(std::as_bytes(std::span(control_greeting)));
        EXPECT_EQ(hear(), ended);
    }
}

TEST_F(data_connection_key, that_is_wrong_is_refused) {
    session_token wrong = grant.token;
    wrong[15] ^= std::byte{1};
    EXPECT_EQ(shake(session_key{grant.session_id, wrong}), tls_outcome::failed);
}

TEST_F(data_connection_key, of_a_session_that_has_ended_is_none) {
    host.close_session(grant.session_id, status::closed);
    ASSERT_EQ(shake(session_key{grant.session_id, grant.token}), tls_outcome::done);
    EXPECT_EQ(tls->session(), std::nullopt);
    EXPECT_EQ(tls->peer_name(), folder.key("server")) << "certificates were shown after all";
}

TEST_F(data_connection_key, is_no_way_around_the_list_of_clients) {
    folder.make("outsider");
    host.close_session(grant.session_id, status::closed);
    const tls_outcome shaken = shake(session_key{grant.session_id, grant.token}, data_protocol, "outsider");
    // A client may finish its side before it hears of the refusal.
    if (shaken == tls_outcome::done) {
        EXPECT_EQ(answer_to(grant.session_id), ended);
    }
    EXPECT_EQ(host.taken(), 0U);
}

}  // namespace
}  // namespace accel::core::testing
