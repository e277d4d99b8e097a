// SPDX-License-Identifier: Apache-2.0
// The control plane where memory runs out.
#include "faults/no_memory.hpp"
#include "unit/control_fixture.hpp"

namespace accel::faults {
namespace {

using core::testing::control_test;
using core::testing::insecure;
using core::testing::key_folder;
using tests::eventually;

/// With heartbeats so rare that they take no part.
struct control_plane : control_test {
    void serve(const security_options& options) { listen(options, std::chrono::hours{1}); }
    [[nodiscard]] std::uint64_t open_one(const std::shared_ptr<const core::security_identity>& identity) {
        watch = std::make_shared<core::session_watch>();
        return open(identity, wish(std::chrono::hours{1})).value().session_id;
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

TEST_F(control_plane, tells_clients_of_the_end_of_their_sessions) {
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
TEST_F(control_plane, leaves_no_session_that_its_client_does_not_know) {
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
TEST_F(control_plane, tells_servers_that_a_session_was_left) {
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

TEST_F(control_plane, ends_sessions_of_clients_whose_keys_are_taken_out) {
    key_folder folder;
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

}  // namespace
}  // namespace accel::faults
