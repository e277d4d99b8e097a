// SPDX-License-Identifier: Apache-2.0
// A client of bare verbs with a session at a whole server: what only the core of the server notices.
#include "bare_client.hpp"
#include "conformance/held_exchanges.hpp"
#include "conformance/rig.hpp"
#include "core/context_state.hpp"
#include "core/control/control_client.hpp"
#include "core/control/security.hpp"
#include "core/uri.hpp"

#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

namespace accel::rdma::testing {
namespace {

constexpr core::link_geometry shape{4, 4096, 4096};

class rdma_server_hostile : public ::testing::Test {
  protected:
    /// As the library's own client does it, but for the data path.
    void open_session() {
        const auto at = core::parse_uri(r.uri()).value();
        auto security = core::load_client_security(tests::calm_client().security);
        ASSERT_TRUE(security.ok()) << security.error().message;
        core::session_request wish;
        wish.scheme = "rdma";
        wish.wanted = shape;
        wish.peer_timeout = tests::patience(std::chrono::seconds{5});
        wish.description = bad.describe();
        auto grant = context->control().open_session(at.host, at.port, *security, wish, watch,
                                                     core::deadline_after(tests::patience(std::chrono::seconds{10})));
        ASSERT_TRUE(grant.ok()) << grant.error().message;
        bad.connect(grant->description);
    }
    void ask(std::uint32_t slot, std::uint32_t generation) {
        auto what = bad.correct(slot);
        what.header.generation = generation;
        what.header.deadline_ns = core::never.count();
        bad.post(what);
    }
    static const tests::backend_case& rdma() {
        const auto& all = tests::all_backends();
        return *std::find_if(all.begin(), all.end(), [](const auto& each) { return each.scheme == "rdma"; });
    }

    tests::held_exchanges held;
    tests::rig r{rdma(), held.keeper()};
    bare_client bad{shape};
    std::shared_ptr<core::session_watch> watch = std::make_shared<core::session_watch>();
    std::shared_ptr<core::context_state> context = std::make_shared<core::context_state>();
};

TEST_F(rdma_server_hostile, a_request_into_a_busy_slot_ends_the_session_and_reaches_no_handler) {
    open_session();
    ask(1, 1);
    ASSERT_TRUE(held.wait_for(1));
    ask(1, 2);
    EXPECT_TRUE(
        tests::eventually(tests::patience(std::chrono::seconds{5}), [&] { return watch->ended() != status::ok; }));
    EXPECT_EQ(held.size(), 1U);
    EXPECT_EQ(held.take().reply(0), status::peer_lost);
}

TEST_F(rdma_server_hostile, a_repeated_generation_ends_the_session) {
    open_session();
    ask(1, 1);
    EXPECT_EQ(held.take().reply(0), status::ok);
    ASSERT_TRUE(
        tests::eventually(tests::patience(std::chrono::seconds{5}), [&] { return bad.answer(1).generation == 1; }));
    ask(1, 1);
    EXPECT_TRUE(
        tests::eventually(tests::patience(std::chrono::seconds{5}), [&] { return watch->ended() != status::ok; }));
    EXPECT_EQ(held.size(), 0U);
}

}  // namespace
}  // namespace accel::rdma::testing
