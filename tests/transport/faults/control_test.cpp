// SPDX-License-Identifier: Apache-2.0
// The control plane where memory runs out.
#include "faults/failing_calls.hpp"
#include "faults/no_memory.hpp"
#include "hostile/authority.hpp"
#include "unit/control_fixture.hpp"

#include <algorithm>

namespace accel::faults {
namespace {

using core::testing::control_test;
using core::testing::insecure;
using core::testing::key_folder;
using core::testing::log_capture;
using tests::eventually;

struct certificates : control_test {
    [[nodiscard]] security_options with(const std::string& who) {
        authority.sign(who);
        security_options out;
        out.cert_file = authority.file(who + ".pem");
        out.key_file = authority.file(who + ".key");
        out.ca_file = authority.file("ca.pem");
        return out;
    }
    [[nodiscard]] result<core::session_grant> open_at_localhost(const security_options& options) {
        auto identity = core::load_client_security(options);
        if (!identity) return identity.error();
        return context->control().open_session("localhost", server->port(), *identity, wish(std::chrono::hours{1}),
                                               watch, core::deadline_after(tests::until_hung()));
    }
    /// Each call of OpenSSL fails: of this thread, and of others.
    void expect_refused(const security_options& options) {
        ASSERT_EQ(open_at_localhost(options).code(), status::unauthorized);
        for (const whose of : {whose::calling_threads, whose::other_threads})
            for (const failure& how : library_failures("tcp")) {
                bool failed = true;
                for (std::size_t number = 0; failed && number < 4; ++number) {
                    fail_call(how, number, of);
                    EXPECT_FALSE(open_at_localhost(options)) << how.call << ' ' << number;
                    failed = stop_failing_calls();
                }
            }
    }
    key_folder folder;
    hostile::authority authority{folder.file("")};
};

TEST_F(certificates, a_certificate_of_another_host_is_refused_whatever_fails) {
    listen(with("elsewhere"), std::chrono::hours{1}, "localhost");
    expect_refused(with("client"));
}

TEST_F(certificates, a_revoked_certificate_is_refused_whatever_fails) {
    listen(with("localhost"), std::chrono::hours{1}, "localhost");
    authority.revoke({"localhost"});
    expect_refused(with("client"));
}

/// With heartbeats so rare that they take no part.
struct control_plane : certificates {
    void serve(const security_options& options) { listen(options, std::chrono::hours{1}); }
    [[nodiscard]] std::uint64_t open_one(const std::shared_ptr<const core::security_identity>& identity) {
        watch = std::make_shared<core::session_watch>();
        std::uint64_t session = 0;
        // The control thread may not have taken keys yet that were loaded a moment ago.
        EXPECT_TRUE(eventually([&] {
            auto made = open(identity, wish(std::chrono::hours{1}));
            if (made) session = made->session_id;
            return made.ok();
        }));
        return session;
    }
    /// The n-th allocation of other threads fails, for each n until there are no more. Then `done` all the same.
    template <class What>
    static void expect_in_time(const What& what) {
        constexpr std::size_t most = 1'000;
        std::size_t number = 0;
        for (bool failed = true; failed && number < most; ++number) {
            SCOPED_TRACE(number);
            what(number);
            failed = stop_failing();
        }
        EXPECT_LT(number, most);
        EXPECT_GT(number, 1U);
        std::printf("%zu allocations\n", number - 1);
    }
};

TEST_F(control_plane, the_end_of_a_session_is_reported_to_the_client) {
    serve(insecure());
    expect_in_time([this](std::size_t number) {
        const std::uint64_t session = open_one(keys(insecure()));
        core::control_server::ended_sessions notice(1);
        fail_allocation_elsewhere(number);
        fail_allocation(0);
        server->end_session(session, status::application_error, std::move(notice));
        EXPECT_TRUE(eventually([this] { return watch->ended() == status::application_error; }));
    });
}

/// The client's connection stays, for it has another session.
TEST_F(control_plane, a_failed_open_leaves_no_session_behind) {
    serve(insecure());
    expect_in_time([this](std::size_t number) {
        const std::uint64_t before = open_one(keys(insecure()));
        const auto other = watch;
        watch = std::make_shared<core::session_watch>();
        const auto identity = keys(insecure());
        fail_allocation_elsewhere(number);
        auto made = open(identity, wish(std::chrono::hours{1}), tests::until_hung());
        EXPECT_TRUE(made || made.code() == status::out_of_memory) << to_string(made.code());
        const std::size_t known = (made ? 1U : 0U) + (other->ended() == status::ok ? 1U : 0U);
        EXPECT_TRUE(eventually([&] { return host.open() == known; })) << host.open() << " of " << known;
        context->control().close_session(before, other);
        if (made) context->control().close_session(made->session_id, watch);
        EXPECT_TRUE(eventually([&] { return host.open() == 0; }));
    });
}

/// The client's connection stays, for it has another session.
TEST_F(control_plane, a_closed_session_is_reported_to_the_server) {
    serve(insecure());
    expect_in_time([this](std::size_t number) {
        const std::uint64_t other = open_one(keys(insecure()));
        const std::uint64_t session = open_one(keys(insecure()));
        fail_allocation_elsewhere(number);
        context->control().close_session(session, watch);
        EXPECT_TRUE(eventually([&] { return host.ended(session) != status::ok; }));
        EXPECT_EQ(host.ended(other), status::ok);
    });
}

TEST_F(control_plane, sessions_of_revoked_keys_end) {
    serve(folder.server());
    expect_in_time([&](std::size_t number) {
        folder.authorize({"client"});
        ASSERT_TRUE(security->reload().ok());
        server->wake();
        const std::uint64_t session = open_one(keys(folder.client()));
        folder.authorize({"stranger"});
        ASSERT_TRUE(security->reload().ok());
        fail_allocation_elsewhere(number);
        server->wake();
        EXPECT_TRUE(eventually([&] { return host.ended(session) == status::unauthorized; }));
    });
}

/// OpenSSL has no memory to verify a certificate again, which has been revoked.
TEST_F(control_plane, clients_that_cannot_be_verified_stay_until_they_can_be) {
    listen(with("localhost"), std::chrono::hours{1}, "localhost");
    const auto grant = open_at_localhost(with("client"));
    ASSERT_TRUE(grant) << grant.error().message;
    const log_capture log;
    authority.revoke({"client"});
    const auto all = library_failures("tcp");
    fail_call(*std::ranges::find(all, "X509_STORE_CTX_new", &failure::call), 0, whose::other_threads);
    ASSERT_TRUE(security->reload().ok());
    server->wake();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::unauthorized; }));
    EXPECT_TRUE(stop_failing_calls());
    EXPECT_NE(log.text().find("certificate revoked"), std::string::npos) << log.text();
    EXPECT_EQ(log.text().find("no memory"), std::string::npos) << log.text();
}

}  // namespace
}  // namespace accel::faults
