// SPDX-License-Identifier: Apache-2.0
// Sessions of several clients, which end in every way and in any order, against a model of what their server's host and
// their clients hear of it.
#include "unit/control_fixture.hpp"

#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace accel::core::testing {
namespace {

/// A context, or a connection by hand, and its sessions that are open.
struct playing_client {
    std::shared_ptr<context_state> context;  ///< null: by hand
    std::unique_ptr<raw_client> hand;
    std::map<std::uint64_t, std::shared_ptr<session_watch>> sessions;
};

struct control_sequences : control_test {
    /// As many as one address may have connections.
    static constexpr std::size_t max_clients = 3;

    [[nodiscard]] std::size_t pick(std::size_t below) { return random() % below; }
    [[nodiscard]] std::map<std::uint64_t, std::shared_ptr<session_watch>>::iterator any_of(playing_client& of) {
        return std::next(of.sessions.begin(), static_cast<std::ptrdiff_t>(pick(of.sessions.size())));
    }

    void join() {
        playing_client& made = clients.emplace_back();
        if (pick(2) == 0)
            made.context = std::make_shared<context_state>();
        else
            made.hand = std::make_unique<raw_client>(server->port());
        open_one(made);
    }
    void open_one(playing_client& of) {
        const auto own = std::make_shared<session_watch>();
        if (of.hand == nullptr) {
            auto grant = of.context->control().open_session(own_loopback(), server->port(), keys(insecure()), wish(1h),
                                                            own, deadline_after(patience));
            ASSERT_TRUE(grant.ok()) << grant.error().message;
            of.sessions[grant->session_id] = own;
            return;
        }
        of.hand->send({1, hello{wish(1h), now()}});
        auto answer = of.hand->receive();
        ASSERT_TRUE(answer.ok() && std::holds_alternative<welcome>(answer->body));
        of.sessions[std::get<welcome>(answer->body).grant.session_id] = own;
    }
    /// The client ends one of its sessions.
    void close_one(playing_client& of) {
        const auto which = any_of(of);
        const bool orderly = of.hand == nullptr || pick(2) == 0;
        const std::shared_ptr<session_watch> own = which->second;
        if (of.hand == nullptr) {
            // As another session's number is, once a server that was restarted has given it again.
            of.context->control().close_session(of.sessions.begin()->first, std::make_shared<session_watch>());
            of.context->control().close_session(which->first, own);
        } else {
            of.hand->send({0, goodbye{which->first, orderly ? status::closed : status::cancelled}});
        }
        told[which->first] = orderly ? status::closed : status::peer_lost;
        of.sessions.erase(which);
        EXPECT_EQ(own->ended(), status::ok) << "who closes knows";
    }
    /// The server ends one, which its host knows already.
    void end_one(playing_client& of) {
        const auto which = any_of(of);
        const status why = pick(2) == 0 ? status::overloaded : status::closed;
        server->end_session(4711, why);  // there is none
        server->end_session(which->first, why);
        told[which->first] = status::ok;
        if (of.hand != nullptr) {
            auto heard = of.hand->receive();
            ASSERT_TRUE(heard.ok() && std::holds_alternative<goodbye>(heard->body));
            EXPECT_EQ(std::get<goodbye>(heard->body).session_id, which->first);
            EXPECT_EQ(std::get<goodbye>(heard->body).why, why);
        } else {
            pollfd wakes{which->second->event_fd(), POLLIN, 0};
            EXPECT_TRUE(eventually([&] { return which->second->ended() == why; }));
            EXPECT_EQ(::poll(&wakes, 1, 30'000), 1);
        }
        of.sessions.erase(which);
    }
    /// One with a session, or the host would not hear of it.
    void die(std::size_t number) {
        playing_client& of = clients[number];
        status why = status::peer_lost;
        if (of.hand == nullptr) {
            why = status::closed;
            of.context.reset();
        } else {
            switch (pick(4)) {
                case 0:
                    why = pick(2) == 0 ? status::closed : status::peer_lost;
                    of.hand->send({0, goodbye{0, why}});
                    EXPECT_TRUE(of.hand->ends());
                    break;
                case 1:
                    why = status::protocol_error;
                    of.hand->send_raw("\xff\xff\xff\xff");
                    EXPECT_TRUE(of.hand->ends());
                    break;
                case 2:
                    of.hand->send_raw("\x20");  // the beginning of a frame
                    break;
                default:
                    break;
            }
            of.hand.reset();
        }
        for (const auto& [id, watch] : of.sessions) told[id] = why;
        clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(number));
    }
    void step() {
        const std::size_t number = pick(clients.size() + 1);
        if (number == max_clients) return;
        if (number == clients.size()) return join();
        playing_client& of = clients[number];
        if (of.sessions.empty()) return open_one(of);
        const std::size_t what = pick(8);
        what < 3 ? open_one(of) : what < 5 ? close_one(of) : what < 7 ? end_one(of) : die(number);
    }
    /// The host was told of each end, and of nothing else. All others live.
    void check() {
        for (const auto& [id, why] : told)
            EXPECT_TRUE(eventually([&, id = id, why = why] { return host.ended(id) == why; }));
        std::size_t open = 0;
        for (const playing_client& each : clients) {
            open += each.sessions.size();
            for (const auto& [id, watch] : each.sessions) {
                EXPECT_EQ(host.ended(id), status::ok) << id;
                EXPECT_EQ(watch->ended(), status::ok) << id;
            }
        }
        std::size_t ended_by_the_host = 0;
        for (const auto& [id, why] : told) ended_by_the_host += why == status::ok ? 1U : 0U;
        EXPECT_EQ(host.open(), open + ended_by_the_host);
        EXPECT_EQ(host.endings().size(), told.size() - ended_by_the_host) << "each end is told once";
    }
    /// Each connection's share has been returned, and no more.
    void expect_whole_share() {
        while (clients.size() < max_clients && !HasFailure()) join();
        raw_client beyond{server->port()};
        auto answer = beyond.receive();
        ASSERT_TRUE(answer.ok() && std::holds_alternative<refused>(answer->body));
        EXPECT_EQ(std::get<refused>(answer->body).code, status::overloaded);
    }

    std::minstd_rand random{11};
    std::vector<playing_client> clients;
    std::map<std::uint64_t, status> told;  ///< of sessions that have ended; `ok`: by the host, which is not told
};

TEST_F(control_sequences, sessions_end_with_their_clients_in_any_order_and_return_their_share) {
    limits.max_client_connections = max_clients;
    listen(insecure(), 1h);
    const std::size_t before = open_descriptors();
    for (int i = 0; i < tests::effort(600) && !HasFailure(); ++i) {
        SCOPED_TRACE("step " + std::to_string(i));
        step();
        check();
    }
    for (playing_client& each : clients)
        if (each.sessions.empty()) open_one(each);
    expect_whole_share();
    while (!clients.empty() && !HasFailure()) die(pick(clients.size()));
    check();
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; })) << open_descriptors() << " > " << before;
}

}  // namespace
}  // namespace accel::core::testing
