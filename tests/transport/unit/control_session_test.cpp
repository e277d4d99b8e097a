// SPDX-License-Identifier: Apache-2.0
#include "unit/control_fixture.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include <poll.h>

namespace accel::core::testing {
namespace {

TEST_F(control_test, the_host_decides_what_a_session_is_granted) {
    listen(insecure());
    auto grant = open(keys(insecure()), wish());
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    EXPECT_EQ(grant->session_id, 1U);
    EXPECT_EQ(grant->token[0], std::byte{1});
    EXPECT_EQ(grant->granted.slots, 4U);
    EXPECT_EQ(grant->granted.request_bytes, 1000U);
    EXPECT_EQ(grant->description, wish().description);
    EXPECT_EQ(grant->peer_timeout, nanoseconds{2s}) << "of the server";
    EXPECT_EQ(host.last_request().scheme, "tcp");
    EXPECT_EQ(host.last_request().peer_timeout, nanoseconds{2s});
    EXPECT_EQ(host.last_client().address.substr(0, 4), "127.");
    EXPECT_EQ(host.last_client().name, "") << "nobody was authenticated";
    EXPECT_EQ(watch->ended(), status::ok);
    EXPECT_EQ(watch->clock_offset_ns.load(), 0) << "one host, one clock";
}

/// The thread may take some of them while others are added.
TEST_F(control_test, each_cancelled_call_reaches_the_host) {
    listen(insecure());
    constexpr std::uint32_t slots = 1000;
    watch = std::make_shared<session_watch>(slots);
    auto grant = open(keys(insecure()), wish());
    ASSERT_TRUE(grant.ok());
    std::vector<std::pair<std::uint64_t, call_id>> expected;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
        const call_id cancelled{slot, slot + 5};
        (void)watch->cancels.add(cancelled);
        expected.emplace_back(grant->session_id, cancelled);
    }
    context->control().send_cancels();
    ASSERT_TRUE(eventually([&] { return host.cancelled().size() == slots; }));
    auto told = host.cancelled();
    std::ranges::sort(told, {}, [](const auto& each) { return each.second.slot; });
    EXPECT_EQ(told, expected);
}

/// More cancels than a server reads of one client: they are put together, and the session lives.
TEST_F(control_test, a_storm_of_cancels_is_slowed_at_the_client) {
    listen(insecure());
    watch = std::make_shared<session_watch>(64);
    ASSERT_TRUE(open(keys(insecure()), wish()).ok());
    std::uint32_t generation = 0;
    const nanoseconds end = deadline_after(1s);
    while (now() < end) {
        ++generation;
        for (std::uint32_t slot = 0; slot < 64; ++slot)
            if (watch->cancels.add({slot, generation})) context->control().send_cancels();
    }
    const auto last_arrived = [&] {
        const auto told = host.cancelled();
        return !told.empty() && told.back().second.generation == generation;
    };
    EXPECT_TRUE(eventually(last_arrived));
    EXPECT_LT(host.cancelled().size(), 64 * (256U + 512U * 30U));
    EXPECT_EQ(watch->ended(), status::ok);
}

TEST_F(control_test, the_host_s_answers_come_back_word_for_word) {
    host.refusal = {status::overloaded, 0, "all 3 sessions are taken"};
    listen(insecure());
    const auto refused = open(keys(insecure()), wish());
    ASSERT_EQ(refused.code(), status::overloaded);
    EXPECT_EQ(refused.error().message, "all 3 sessions are taken");
    auto offered =
        context->control().query_offers(own_loopback(), server->port(), keys(insecure()), deadline_after(patience));
    ASSERT_TRUE(offered.ok()) << offered.error().message;
    EXPECT_EQ(*offered, (std::vector<std::string>{"tcp", "zmq"})) << "in the server's order";
    const auto find = [&](std::string_view name) {
        return context->control().find_target(own_loopback(), server->port(), keys(insecure()), name,
                                              deadline_after(patience));
    };
    auto found = find("model");
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(*found, target_of("model").number);
    const auto unknown = find("other");
    ASSERT_EQ(unknown.code(), status::not_found);
    EXPECT_EQ(unknown.error().message, "no such target");
    const auto list = [&](std::string_view after) {
        return context->control().list_targets(own_loopback(), server->port(), keys(insecure()), after,
                                               deadline_after(patience));
    };
    EXPECT_EQ(list("").value().names, std::vector<std::string>{"model"});
    EXPECT_TRUE(list("").value().more);
    EXPECT_EQ(list("model").value().names, std::vector<std::string>{"other"});
    const auto health = [&](std::string_view name) {
        return context->control()
            .check_health(own_loopback(), server->port(), keys(insecure()), name, deadline_after(patience))
            .value();
    };
    EXPECT_EQ(health(""), health_state::not_serving);
    EXPECT_EQ(health("model"), health_state::serving);
    EXPECT_EQ(health("other"), health_state::unknown);
}

TEST_F(control_test, a_draining_server_notifies_open_and_later_sessions) {
    listen(insecure());
    ASSERT_TRUE(open(keys(insecure()), wish()).ok());
    EXPECT_TRUE(watch->good());
    server->drain();
    EXPECT_TRUE(eventually([&] { return watch->drains(); }));
    EXPECT_FALSE(watch->good());
    EXPECT_EQ(watch->ended(), status::ok);
    pollfd told{watch->event_fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&told, 1, 30'000), 1);
    watch->heard();
    EXPECT_EQ(::poll(&told, 1, 0), 0) << "it is told once";
    watch = std::make_shared<session_watch>();
    ASSERT_TRUE(open(keys(insecure()), wish()).ok()) << "the host decides whether it opens sessions";
    EXPECT_TRUE(eventually([&] { return watch->drains(); }));
    server.reset();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::closed; }));
    told.fd = watch->event_fd();
    EXPECT_EQ(::poll(&told, 1, 30'000), 1);
}

TEST_F(control_test, both_ends_stay_connected_while_nothing_happens) {
    listen(insecure(), 1s);
    ASSERT_TRUE(open(keys(insecure()), wish(1s)).ok());
    std::this_thread::sleep_for(2500ms);
    EXPECT_EQ(watch->ended(), status::ok);
    EXPECT_EQ(host.open(), 1U);
}

/// Of this connection and of another one.
TEST_F(control_test, heartbeats_are_sent_while_a_session_is_being_opened) {
    listen(insecure(), patience);
    std::array<raw_client, 2> clients{raw_client{server->port()}, raw_client{server->port()}};
    const auto is = [](auto&& message, auto kind) {
        return message.ok() && std::holds_alternative<decltype(kind)>(message->body);
    };
    for (raw_client& each : clients) {
        each.send({1, hello{wish(1s), now()}});
        ASSERT_TRUE(is(each.receive(), welcome{}));
    }
    host.hold();
    clients[0].send({2, hello{wish(1s), now()}});
    ASSERT_TRUE(eventually([&] { return host.asked() == 3; }));
    for (int i = 0; i < 5; ++i) {
        for (raw_client& each : clients) {
            auto beat = each.next(tests::until_hung());
            ASSERT_TRUE(beat && is(*beat, heartbeat{})) << "heartbeat " << i;
            each.send({0, heartbeat{}});
        }
    }
    host.go_on();
    EXPECT_TRUE(is(clients[0].receive(), welcome{}));
    EXPECT_EQ(host.open(), 3U);
}

TEST_F(control_test, a_closed_port_is_reported_at_a_short_deadline_or_long_before_it) {
    listen(insecure());
    const std::uint16_t port = server->port();
    server.reset();
    const std::string place = own_loopback() + ":" + std::to_string(port);
    const auto open_within = [&](nanoseconds time) {
        return context->control().open_session(own_loopback(), port, keys(insecure()), wish(), watch,
                                               deadline_after(time));
    };
    auto failed = open_within(100ms);
    EXPECT_EQ(failed.code(), status::timed_out);
    EXPECT_NE(failed.error().message.find("no server answered at " + place), std::string::npos)
        << failed.error().message;
    const nanoseconds start = now();
    failed = open_within(patience);
    EXPECT_EQ(failed.code(), status::peer_lost);
    EXPECT_EQ(failed.error().native, ECONNREFUSED);
    EXPECT_LT(now() - start, patience / 2);
    EXPECT_EQ(failed.error().message, "nothing listens at " + place + ": start the server, or correct the URI");
}

TEST_F(control_test, a_server_that_starts_late_is_still_reached) {
    listen(insecure());
    const std::uint16_t port = server->port();
    server.reset();
    std::thread late{[&] {
        std::this_thread::sleep_for(200ms);
        auto again = control_server::listen(own_loopback(), port, security, 2s, host);
        EXPECT_TRUE(again.ok()) << again.error().message;
        if (again.ok()) server = std::move(*again);
    }};
    const auto grant = context->control().open_session(own_loopback(), port, keys(insecure()), wish(), watch,
                                                       deadline_after(patience));
    late.join();
    EXPECT_TRUE(grant.ok()) << grant.error().message;
}

TEST_F(control_test, a_caller_that_gave_up_leaves_no_session_behind) {
    host.hold();
    listen(insecure());
    tests::with_enough_time(1s, [&](nanoseconds time) {
        EXPECT_EQ(open(keys(insecure()), wish(), time).code(), status::timed_out);
        return host.asked() > 0;
    });
    host.go_on();
    EXPECT_TRUE(eventually([&] { return host.opened() == host.asked() && host.open() == 0; }));
}

TEST_F(control_test, a_port_that_is_taken_is_named) {
    listen(insecure());
    const auto taken = control_server::listen(own_loopback(), server->port(), security, 2s, host);
    ASSERT_EQ(taken.code(), status::system_error);
    EXPECT_EQ(taken.error().native, EADDRINUSE);
    EXPECT_NE(taken.error().message.find("in use"), std::string::npos);
}

TEST_F(control_test, sessions_of_one_context_share_a_connection) {
    listen(insecure());
    ASSERT_TRUE(open(keys(insecure()), wish()).ok());
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 300; ++i) ASSERT_TRUE(open(keys(insecure()), wish()).ok());
    EXPECT_EQ(host.open(), 301U);
    EXPECT_LE(open_descriptors(), before + 2);
    server.reset();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::closed; }));
}

}  // namespace
}  // namespace accel::core::testing
