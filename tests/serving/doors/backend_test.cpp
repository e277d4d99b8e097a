// SPDX-License-Identifier: Apache-2.0
// The slots of servers behind the doors: which calls may have one, and where a call goes when its server is lost.
#include "backend_rig.hpp"

#include <accel_transport/accel_transport.hpp>

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors {
namespace {

/// Each server is lost in turn. The request comes back each time, and nobody gets it twice.
TEST(doors_losses, a_lost_request_is_offered_to_each_other_server) {
    backend_rig rig(4);
    returned_request request;
    auto who = rig.ask();
    std::set<std::size_t> seen;
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(who->held.size(), 1U);
        const call_slot slot = who->held[0];
        EXPECT_TRUE(seen.insert(rig.server_of(slot)).second) << "it was there before";
        if (request.is_kept()) request.move_to(slot);
        if (i == 0) slot.request[0] = std::byte{7};
        EXPECT_EQ(slot.request[0], std::byte{7});
        rig.lose(rig.server_of(slot));
        ASSERT_TRUE(rig.model().take_back_unsent(send(slot, 1, who), slot, 1, request));
        who = rig.ask({.past = request.past()});
    }
    ASSERT_EQ(who->held.size(), 1U);
    const call_slot last = who->held[0];
    request.move_to(last);
    rig.lose(rig.server_of(last));
    EXPECT_FALSE(rig.model().take_back_unsent(send(last, 1, who), last, 1, request)) << "no server is left";
    EXPECT_EQ(rig.requests(), 0);
}

TEST(doors_losses, only_calls_that_no_handler_has_seen_go_to_another_server) {
    for (std::uint16_t i = 0; i < status_count; ++i) {
        const auto said = static_cast<status>(i);
        SCOPED_TRACE(to_string(said));
        const bool unseen = said == status::closed || said == status::not_found;
        const bool unsent = said == status::closed || said == status::peer_lost || said == status::device_lost;
        backend_rig rig(2);
        returned_request request;
        auto who = rig.ask();
        EXPECT_FALSE(rig.model().take_back(ended(said, 0), who->held.at(0), 1, request)) << "a handler's";
        EXPECT_FALSE(request.is_kept());
        EXPECT_EQ(rig.model().take_back(ended(said), who->held.at(0), 1, request), unseen);
        who = rig.ask();
        returned_request other;
        EXPECT_EQ(rig.model().take_back_unsent(said, who->held.at(0), 1, other), unsent);
        EXPECT_EQ(other.is_kept(), unsent);
    }
}

TEST(doors_losses, requests_that_come_back_have_a_bounded_memory) {
    backend_rig rig(2, 8, 10);
    const auto one = rig.ask();
    const auto other = rig.ask();
    returned_request first;
    ASSERT_TRUE(rig.model().take_back(ended(status::closed), one->held.at(0), 6, first));
    {
        returned_request second;
        EXPECT_FALSE(rig.model().take_back(ended(status::closed), other->held.at(0), 5, second));
        EXPECT_FALSE(second.is_kept());
    }
    const auto next = rig.ask({.past = first.past()});
    first.move_to(next->held.at(0));
    returned_request second;
    EXPECT_TRUE(rig.model().take_back(ended(status::closed), other->held.at(0), 10, second)) << "it is free again";
    second = {};
    EXPECT_TRUE(rig.model().take_back(ended(status::closed), next->held.at(0), 10, first)) << "its client has left";
}

/// Two servers with one slot each, and a request that the first has given back.
TEST(doors_losses, a_returned_request_waits_for_another_server_first_and_keeps_nobody_from_its_own) {
    backend_rig rig(2, 1);
    const auto release = [](const waiting_caller& from) { from.held.at(0).on->release(from.held.at(0).id); };
    const auto first = rig.ask();
    const auto second = rig.ask();
    const auto next = rig.ask();
    returned_request request;
    ASSERT_TRUE(rig.model().take_back(ended(status::closed), first->held.at(0), 1, request));
    ASSERT_EQ(next->held.size(), 1U) << "the first server has a slot for it";
    const std::vector older{rig.ask(), rig.ask()};
    const auto returned = rig.ask({.past = request.past()});
    release(*next);
    EXPECT_EQ(older[0]->held.size(), 1U);
    EXPECT_EQ(returned->held.size(), 0U);
    release(*second);
    ASSERT_EQ(returned->held.size(), 1U);
    EXPECT_EQ(rig.server_of(returned->held[0]), rig.server_of(second->held[0]));
    EXPECT_EQ(older[1]->held.size(), 0U);
    const auto further = rig.ask();
    release(*returned);
    EXPECT_EQ(older[1]->held.size(), 1U);
    release(*older[0]);
    EXPECT_EQ(further->held.size(), 1U);
}

/// Two servers, of which the first has unloaded the model.
TEST(doors_losses, a_model_is_ready_while_one_server_may_have_it) {
    backend_rig rig(2);
    const auto who = rig.ask();
    const auto other = rig.ask();
    const completion unloaded = ended(status::not_found);
    const auto began = std::chrono::steady_clock::now();
    rig.model().heard(*who->held[0].on, unloaded);
    EXPECT_TRUE(rig.model().ready());
    int at_first = 0;
    for (int i = 0; i < 4; ++i) at_first += rig.server_of(rig.ask()->held.at(0)) == rig.server_of(who->held[0]) ? 1 : 0;
    EXPECT_LE(at_first, (std::chrono::steady_clock::now() - began) / gateway::server_choice::between_questions);
    EXPECT_EQ(rig.model().without_server(status::not_found), status::peer_lost) << "the other one may have it";
    rig.model().heard(*other->held[0].on, unloaded);
    EXPECT_EQ(rig.model().without_server(status::not_found), status::not_found);
    EXPECT_FALSE(rig.model().ready());
    EXPECT_EQ(rig.ask()->held.size(), 1U) << "it is asked all the same";
    // The servers have it again: the door asks by itself.
    EXPECT_TRUE(rig.run_until([&] { return rig.model().ready(); }));
    EXPECT_GE(rig.requests(), 1);
}

TEST(doors_sticky, requests_with_the_same_value_of_metadata_go_to_one_server) {
    backend_rig rig(3, {.balance = gateway::balance::sticky,
                        .key = gateway::sticky_key::metadata,
                        .key_name = "user",
                        .channels = 1,
                        .slots = 8});
    const auto server_of = [&](const std::string& user) {
        const auto who = rig.ask({}, {{"other", "x"}, {"user", user}});
        const call_slot slot = who->held.at(0);
        slot.on->release(slot.id);
        return rig.server_of(slot);
    };
    std::set<std::size_t> used;
    for (int user = 0; user < 40; ++user) {
        const std::size_t first = server_of(std::to_string(user));
        used.insert(first);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(server_of(std::to_string(user)), first) << user;
    }
    EXPECT_EQ(used.size(), 3U);
}

TEST(doors_losses, a_server_is_asked_for_its_model_once_at_a_time) {
    backend_rig rig(1);
    const auto who = rig.ask();
    rig.hold();
    rig.model().heard(*who->held[0].on, ended(status::not_found));
    ASSERT_TRUE(rig.run_until([&] { return rig.requests() == 1; }));
    rig.run_for(4 * backends::between_questions);
    EXPECT_EQ(rig.requests(), 1);
    rig.answer_held();
    EXPECT_TRUE(rig.run_until([&] { return rig.model().ready(); }));
}

TEST(doors_losses, an_unload_that_nobody_asks_about_is_noticed) {
    backend_rig rig(2, 8, 1'000, true);
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(rig.model().ready());
        rig.set_loaded(false);
        EXPECT_TRUE(rig.run_until([&] { return !rig.model().ready(); }));
        rig.set_loaded(true);
        EXPECT_TRUE(rig.run_until([&] { return rig.model().ready(); }));
    }
    EXPECT_EQ(rig.requests(), 0) << "no question goes to the model";
}

/// All slots are taken, and the first that is free goes to the question, ahead of a request that waits.
TEST(doors_losses, a_question_is_asked_although_requests_wait_for_slots) {
    backend_rig rig(1, 1, 1'000, true);
    ASSERT_TRUE(rig.run_until([&] { return rig.questions() > 0; }));
    const auto who = rig.ask();
    ASSERT_TRUE(rig.run_until([&] { return who->held.size() == 1; }));
    rig.set_loaded(false);
    const int before = rig.questions();
    const auto next = rig.ask();
    rig.run_for(2 * backends::between_questions);
    EXPECT_EQ(rig.questions(), before);
    EXPECT_TRUE(rig.model().ready());
    who->held[0].on->release(who->held[0].id);
    EXPECT_EQ(next->held.size(), 0U);
    EXPECT_TRUE(rig.run_until([&] { return !rig.model().ready() && next->held.size() == 1; }));
}

TEST(doors_losses, a_lost_or_busy_server_does_not_disprove_its_models) {
    backend_rig rig(1);
    const auto who = rig.ask();
    rig.model().heard(*who->held[0].on, ended(status::not_found));
    for (const status each : {status::peer_lost, status::closed, status::device_lost, status::timed_out,
                              status::cancelled, status::overloaded}) {
        rig.model().heard(*who->held[0].on, ended(each));
        EXPECT_FALSE(rig.model().ready()) << to_string(each);
    }
    rig.model().heard(*who->held[0].on, ended(status::invalid_argument));
    EXPECT_TRUE(rig.model().ready());
}

}  // namespace
}  // namespace accel::examples::serving::doors
