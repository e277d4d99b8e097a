// SPDX-License-Identifier: Apache-2.0
// Data connections that are made with the key of their session instead of with certificates.
#include "core/control/data_preamble.hpp"
#include "core/net/socket.hpp"
#include "core/tls/tls_stream.hpp"
#include "unit/control_fixture.hpp"

#include <gmock/gmock.h>
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
                      const std::string& who = "stranger", const char* suites = nullptr) {
        socket = connect_raw(server->port());
        auto made = tls_stream::connect(keys(folder.client(who))->keys, socket.get(), own_loopback(), protocol, key);
        EXPECT_TRUE(made.ok());
        tls.emplace(std::move(*made));
        if (suites != nullptr) {
            EXPECT_EQ(SSL_set_ciphersuites(tls->get(), suites), 1);
        }
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

/// Who shows which key, and which session it wants.
TEST_F(data_connection_key, a_data_connection_is_for_the_session_of_its_key_or_for_any_of_its_certificate) {
    auto second = open(keys(folder.client()), wish());
    ASSERT_TRUE(second.ok());
    folder.make("outsider");
    const session_key own{grant.session_id, grant.token};
    const session_key made_up{grant.session_id, {}};
    constexpr std::uint16_t taken = 0;
    struct visit {
        const char* name;
        std::optional<session_key> key;
        const char* who;
        std::uint64_t wants;
        std::uint16_t answer;
        std::optional<std::uint64_t> session;  ///< that its key is for
        const char* suites = nullptr;
    };
    const std::vector<visit> visits{
        {"a key", own, "stranger", grant.session_id, taken, grant.session_id},
        {"a key, without a certificate that counts", own, "outsider", grant.session_id, taken, grant.session_id},
        {"a key of another session", own, "stranger", second->session_id, ended, grant.session_id},
        {"no key", {}, "stranger", grant.session_id, taken, {}},
        {"neither key nor certificate", {}, "outsider", grant.session_id, ended, {}},
        // The key is for one cipher suite. Nobody has checked it where another one was taken.
        {"an ignored key", made_up, "stranger", second->session_id, taken, {}, "TLS_AES_256_GCM_SHA384"},
    };
    std::size_t all = 0;
    for (const visit& each : visits) {
        SCOPED_TRACE(each.name);
        const tls_outcome shaken = shake(each.key, data_protocol, each.who, each.suites);
        all += each.answer == taken ? 1U : 0U;
        // A client may finish its side before it hears of the refusal.
        if (each.answer != ended || each.key) {
            ASSERT_EQ(shaken, tls_outcome::done);
            EXPECT_EQ(tls->session(), each.session);
            EXPECT_EQ(tls->peer_name(), each.session ? "" : folder.key("server")) << "as a certificate says";
        }
        if (shaken == tls_outcome::done) {
            EXPECT_EQ(answer_to(each.wants), each.answer);
        }
        EXPECT_EQ(host.taken(), all);
    }
    host.close_session(grant.session_id, status::closed);
    EXPECT_EQ(shake(own), tls_outcome::failed) << "of a session that has ended";
}

TEST_F(data_connection_key, a_session_key_opens_no_control_connection) {
    for (const std::string_view protocol : {control_protocol, data_protocol}) {
        ASSERT_EQ(shake(session_key{grant.session_id, grant.token}, protocol), tls_outcome::done);
        say(std::as_bytes(std::span(control_greeting)));
        EXPECT_EQ(hear(), ended);
    }
}

TEST_F(data_connection_key, a_wrong_key_is_refused_like_one_of_no_session) {
    session_token wrong = grant.token;
    wrong[15] ^= std::byte{1};
    std::vector<std::string> told;
    for (const std::uint64_t number : {grant.session_id, grant.session_id + 1, ~std::uint64_t{0}}) {
        for (const std::string_view protocol : {control_protocol, data_protocol}) {
            EXPECT_EQ(shake(session_key{number, wrong}, protocol), tls_outcome::failed);
            told.push_back(tls->failure());
        }
    }
    EXPECT_THAT(told, ::testing::Each(told.front())) << "a stranger would learn which sessions there are";
    EXPECT_THAT(told.front(), ::testing::HasSubstr("may have ended"));
    EXPECT_EQ(host.taken(), 0U);
}

}  // namespace
}  // namespace accel::core::testing
