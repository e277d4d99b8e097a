// SPDX-License-Identifier: Apache-2.0
#include "core/control/listener.hpp"
#include "core/control/liveness.hpp"
#include "unit/control_fixture.hpp"

#include <optional>
#include <random>
#include <thread>

namespace accel::core::testing {
namespace {

struct control_hostile_test : control_test {
    /// Opens by hand; returns the session's id.
    [[nodiscard]] static std::uint64_t open_by_hand(raw_client& client, nanoseconds peer_timeout = 2s) {
        client.send({5, hello{wish(peer_timeout), now()}});
        auto answer = client.receive();
        EXPECT_TRUE(answer.ok()) << answer.error().message;
        const auto* opened = answer.ok() ? std::get_if<welcome>(&answer->body) : nullptr;
        EXPECT_NE(opened, nullptr);
        return opened != nullptr ? opened->grant.session_id : 0;
    }
};

TEST_F(control_hostile_test, an_unauthorised_key_is_refused_quickly_and_named_in_the_log) {
    key_folder folder;
    std::string logged;
    {
        const log_capture capture;
        listen(folder.server());
        const nanoseconds start = now();
        const auto refused = open(keys(folder.client("stranger")), wish());
        ASSERT_EQ(refused.code(), status::unauthorized) << refused.error().message;
        EXPECT_LT(now() - start, 15s);
        EXPECT_NE(refused.error().message.find(folder.key("stranger")), std::string::npos) << refused.error().message;
        server.reset();
        context.reset();
        logged = capture.text();
    }
    EXPECT_NE(logged.find(folder.key("stranger")), std::string::npos) << logged;
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(control_hostile_test, authorized_keys_end_with_their_server) {
    key_folder folder;
    listen(folder.server());
    ASSERT_TRUE(open(keys(folder.client()), wish()).ok());
    const std::uint16_t port = server->port();
    server.reset();
    // Another server of the context, with other clients.
    folder.authorize({"stranger"});
    auto other = live_security::of_server(folder.server());
    ASSERT_TRUE(other.ok());
    auto again = control_server::listen(own_loopback(), port, *other, 2s, host);
    ASSERT_TRUE(again.ok()) << again.error().message;
    server = std::move(*again);
    EXPECT_EQ(open(keys(folder.client()), wish()).code(), status::unauthorized);
    EXPECT_TRUE(open(keys(folder.client("stranger")), wish()).ok());
}

TEST_F(control_hostile_test, a_wrong_server_key_is_refused_quickly) {
    key_folder folder;
    const log_capture capture;
    listen(folder.server());
    const auto refused = open(keys(folder.client("client", "stranger.pub")), wish());
    EXPECT_EQ(refused.code(), status::unauthorized);
    EXPECT_NE(refused.error().message.find("key is not trusted here"), std::string::npos) << refused.error().message;
    EXPECT_TRUE(eventually([&] { return capture.text().find("a client at") != std::string::npos; }));
}

TEST_F(control_hostile_test, a_client_without_keys_is_refused_quickly) {
    key_folder folder;
    const log_capture capture;
    listen(folder.server());
    const auto refused = open(keys(insecure()), wish());
    EXPECT_EQ(refused.code(), status::unauthorized) << refused.error().message;
    server.reset();
    EXPECT_NE(capture.text().find("refused a client at"), std::string::npos) << capture.text();
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(control_hostile_test, a_client_with_keys_does_not_talk_to_a_server_without) {
    key_folder folder;
    listen(insecure());
    const auto refused = open(keys(folder.client()), wish());
    EXPECT_EQ(refused.code(), status::unauthorized) << refused.error().message;
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(control_hostile_test, malformed_messages_are_dropped_and_the_server_serves_on) {
    const log_capture capture;
    listen(insecure());
    raw_client client{server->port()};
    client.send(std::vector<std::byte>(15, std::byte{1}));
    client.send(std::vector<std::byte>(2'000, std::byte{0xff}));
    std::minstd_rand random{7};
    for (int i = 0; i < 2'000; ++i) {
        auto bytes = encode_control({0, heartbeat{}});
        for (int k = 0; k < 4; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        client.send(bytes);
    }
    // Messages that only a server sends.
    client.send({1, refused{status::closed, "no"}});
    client.send({1, offers{{"tcp"}}});
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
    server.reset();
    EXPECT_NE(capture.text().find("dropped a control message from a client at 127.0.0.1"), std::string::npos);
}

TEST_F(control_hostile_test, a_malformed_hello_is_refused_with_its_reason) {
    listen(insecure());
    raw_client client{server->port()};
    auto bytes = encode_control({8, hello{wish(), now()}});
    bytes.pop_back();
    client.send(bytes);
    auto answer = client.receive();
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->request, 8U);
    EXPECT_EQ(std::get<refused>(answer->body).code, status::protocol_error);

    bytes = encode_control({9, hello{wish(), now()}});
    bytes[4] = std::byte{3};
    client.send(bytes);
    answer = client.receive();
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->request, 9U);
    EXPECT_EQ(std::get<refused>(answer->body).code, status::version_mismatch);
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(control_hostile_test, any_question_for_a_target_is_answered_or_refused) {
    listen(insecure());
    raw_client client{server->port()};
    const auto code_of = [&](const std::vector<std::byte>& question) {
        client.send(question);
        auto answer = client.receive();
        EXPECT_TRUE(answer.ok());
        const auto* no = answer.ok() ? std::get_if<refused>(&answer->body) : nullptr;
        return no != nullptr ? no->code : status::ok;
    };
    EXPECT_EQ(code_of(encode_control({1, find_target{"model"}})), status::ok);
    EXPECT_EQ(code_of(encode_control({2, find_target{"other"}})), status::not_found);
    EXPECT_EQ(code_of(encode_control({3, find_target{"mod\nel"}})), status::protocol_error);
    EXPECT_EQ(code_of(encode_control({4, find_target{""}})), status::protocol_error);
    auto cut = encode_control({5, find_target{"model"}});
    cut.pop_back();
    EXPECT_EQ(code_of(cut), status::protocol_error);
    auto longest = encode_control({6, find_target{std::string(64, 'n')}});
    longest[16] = std::byte{255};
    EXPECT_EQ(code_of(longest), status::protocol_error) << "a length beyond the message";
    client.send({7, target_found{1}});  // only servers say so
    EXPECT_EQ(code_of(encode_control({8, find_target{"model"}})), status::ok) << "the connection goes on";
    EXPECT_EQ(host.opened(), 0U);
}

TEST_F(control_hostile_test, a_client_closes_only_its_own_sessions) {
    listen(insecure());
    auto grant = open(keys(insecure()), wish());
    ASSERT_TRUE(grant.ok());
    raw_client thief{server->port()};
    const std::uint64_t own = open_by_hand(thief);
    thief.send({0, goodbye{grant->session_id, status::closed}});
    thief.send({0, goodbye{own, status::closed}});
    EXPECT_TRUE(eventually([&] { return host.ended(own) == status::closed; }));
    EXPECT_EQ(host.ended(grant->session_id), status::ok);
    // Nor does leaving take others along.
    thief.send({0, goodbye{0, status::closed}});
    EXPECT_TRUE(thief.ends());
    EXPECT_EQ(host.ended(grant->session_id), status::ok);
}

TEST_F(control_hostile_test, a_client_cancels_only_its_own_calls) {
    listen(insecure());
    auto grant = open(keys(insecure()), wish());
    ASSERT_TRUE(grant.ok());
    raw_client thief{server->port()};
    const std::uint64_t own = open_by_hand(thief);
    thief.send({0, cancel_calls{grant->session_id, {{1, 1}}}});
    thief.send({0, cancel_calls{1'000'000, {{1, 1}}}});
    thief.send({0, cancel_calls{own, {{2, 7}, {3, 8}}}});
    EXPECT_TRUE(eventually([&] { return host.cancelled().size() == 2; }));
    const std::vector<std::pair<std::uint64_t, call_id>> only_own{{own, {2, 7}}, {own, {3, 8}}};
    EXPECT_EQ(host.cancelled(), only_own);
}

TEST_F(control_hostile_test, a_silent_client_loses_its_sessions) {
    listen(insecure(), 200ms);
    raw_client client{server->port()};
    const std::uint64_t first = open_by_hand(client);
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return host.ended(first) == status::peer_lost; }));
    EXPECT_GE(now() - start, 150ms);
    EXPECT_LT(now() - start, 15s);
    auto told = client.receive();
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(std::get<goodbye>(told->body).session_id, 0U);
    EXPECT_TRUE(client.ends());
}

TEST_F(control_hostile_test, a_silent_client_is_lost_after_one_peer_timeout) {
    constexpr nanoseconds silence = 5s;
    listen(insecure(), silence);
    raw_client client{server->port()};
    const std::uint64_t only = open_by_hand(client, 1h);
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return host.ended(only) == status::peer_lost; }));
    EXPECT_LT(now() - start, 2 * silence - 500ms);
}

TEST_F(control_hostile_test, the_peer_timeout_of_the_server_limits_that_of_the_client) {
    listen(insecure(), 200ms);
    raw_client client{server->port()};
    const std::uint64_t only = open_by_hand(client, 1h);
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return host.ended(only) == status::peer_lost; }));
    EXPECT_LT(now() - start, 15s) << "an idle server looks as often as its own time demands";
}

TEST_F(control_hostile_test, a_client_that_shows_life_keeps_its_session_and_gets_heartbeats) {
    listen(insecure(), 2s);
    raw_client client{server->port()};
    const std::uint64_t id = open_by_hand(client, 400ms);
    const nanoseconds start = now();
    int beats = 0;
    while (now() - start < 3s || (beats < 5 && now() - start < 6s)) {
        client.send({0, heartbeat{{nanoseconds{0}, nanoseconds{0}, now()}}});
        std::this_thread::sleep_for(50ms);
        while (const auto message = client.next(0ms)) {
            ASSERT_TRUE(message->ok());
            beats += std::holds_alternative<heartbeat>(const_cast<result<control_message>&>(*message)->body) ? 1 : 0;
        }
    }
    EXPECT_EQ(host.ended(id), status::ok);
    EXPECT_GE(beats, 5) << "one each 100 ms, and far more often than it takes for death";
}

/// A server by hand, which answers a hello and then does what the test says.
class raw_server {
  public:
    raw_server() {
        auto opened = listener::open(own_loopback(), 0);
        EXPECT_TRUE(opened.ok());
        door_.emplace(std::move(*opened));
    }
    [[nodiscard]] std::uint16_t port() { return door_->port(); }
    /// The next client, whose greeting is taken.
    void accept() {
        unique_fd socket;
        EXPECT_EQ(wait_ready(door_->fd(), POLLIN, deadline_after(10s)), 0);
        EXPECT_EQ(door_->accept(socket), listener::outcome::accepted);
        client_ = raw_stream(std::move(socket));
        const nanoseconds deadline = deadline_after(10s);
        while (client_.stream().received().size() < greeting_bytes && now() < deadline)
            static_cast<void>(client_.stream().fill());
        client_.stream().take(greeting_bytes);
    }
    /// The next message that is no heartbeat.
    [[nodiscard]] control_message receive() {
        auto message = client_.receive();
        EXPECT_TRUE(message.ok());
        return message.ok() ? *message : control_message{};
    }
    [[nodiscard]] raw_stream& client() { return client_; }

  private:
    std::optional<listener> door_;
    raw_stream client_;
};

struct control_hostile_server_test : control_hostile_test {
    raw_server far;
    bool accepted_ = false;
    result<session_grant> answer = error{status::again, 0, ""};

    /// Opens a session at `far`, which changes its welcome first.
    template <class Change>
    void open_at_raw_server(nanoseconds peer_timeout, Change change) {
        std::thread client{[&, identity = keys(insecure())] {
            answer = context->control().open_session(own_loopback(), far.port(), identity, wish(peer_timeout), watch,
                                                     deadline_after(patience));
        }};
        far.accept();
        const control_message asked = far.receive();
        welcome body;
        body.grant.session_id = 99;
        body.grant.granted = std::get<hello>(asked.body).request.wanted;
        body.grant.peer_timeout = 1s;
        body.clocks = {std::get<hello>(asked.body).sent, now(), now()};
        control_message reply{asked.request, body};
        change(reply, std::get<welcome>(reply.body));
        far.client().send(reply);
        client.join();
    }
    /// The error of an exchange is half of its round trip at most.
    void expect_offset(nanoseconds wanted, nanoseconds took) const {
        EXPECT_LE(std::chrono::abs(nanoseconds{watch->clock_offset_ns.load()} - wanted), took / 2 + 1ns);
    }
};

TEST_F(control_hostile_server_test, a_silent_server_is_lost) {
    open_at_raw_server(200ms, [](control_message&, welcome&) {});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::peer_lost; }));
    EXPECT_LT(now() - start, 15s);
}

TEST_F(control_hostile_server_test, a_silent_server_is_lost_after_one_peer_timeout) {
    constexpr nanoseconds silence = 5s;
    open_at_raw_server(silence, [](control_message&, welcome&) {});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::peer_lost; }));
    EXPECT_LT(now() - start, 2 * silence - 500ms);
}

TEST_F(control_hostile_server_test, a_grant_of_more_slots_than_asked_for_is_refused) {
    open_at_raw_server(2s, [](control_message&, welcome& body) { body.grant.granted.slots += 1; });
    EXPECT_EQ(answer.code(), status::protocol_error);
    EXPECT_EQ(std::get<goodbye>(far.receive().body).session_id, 99U);
}

TEST_F(control_hostile_server_test, a_grant_of_fewer_slots_than_asked_for_is_refused) {
    open_at_raw_server(2s, [](control_message&, welcome& body) { body.grant.granted.slots -= 1; });
    EXPECT_EQ(answer.code(), status::protocol_error);
}

TEST_F(control_hostile_server_test, a_malformed_welcome_is_reported_at_once) {
    const nanoseconds start = now();
    std::thread client{[&, identity = keys(insecure())] {
        answer = context->control().open_session(own_loopback(), far.port(), identity, wish(), watch,
                                                 deadline_after(patience));
    }};
    far.accept();
    const control_message asked = far.receive();
    auto bytes = encode_control({asked.request, welcome{}});
    bytes.pop_back();
    far.client().send(bytes);
    client.join();
    EXPECT_EQ(answer.code(), status::protocol_error);
    EXPECT_LT(now() - start, 15s) << "and is not waited out";
}

TEST_F(control_hostile_server_test, only_the_number_of_the_requested_target_is_accepted) {
    const auto ask = [&](control_message reply) {
        result<std::uint32_t> found = error{status::again, 0, ""};
        std::thread client{[&, identity = keys(insecure())] {
            found =
                context->control().find_target(own_loopback(), far.port(), identity, "model", deadline_after(patience));
        }};
        if (!accepted_) far.accept();
        accepted_ = true;
        const control_message asked = far.receive();
        EXPECT_EQ(std::get<find_target>(asked.body).name, "model");
        reply.request = asked.request;
        far.client().send(reply);
        client.join();
        return found.code();
    };
    EXPECT_EQ(ask({0, target_found{target_of("model").number}}), status::ok);
    EXPECT_EQ(ask({0, target_found{target_of("other").number}}), status::protocol_error);
    EXPECT_EQ(ask({0, offers{{"tcp"}}}), status::protocol_error);
    EXPECT_EQ(ask({0, refused{status::not_found, "no"}}), status::not_found);
    EXPECT_EQ(ask({0, target_found{0}}), status::protocol_error) << "malformed";
}

TEST_F(control_hostile_server_test, a_goodbye_ends_the_watch_with_its_reason) {
    open_at_raw_server(2s, [](control_message&, welcome&) {});
    ASSERT_TRUE(answer.ok());
    far.client().send({0, goodbye{98, status::overloaded}});
    far.client().send({0, goodbye{99, status::closed}});
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::closed; }));
}

TEST_F(control_hostile_server_test, clocks_of_two_hosts_are_compared) {
    const nanoseconds ahead = 5h;
    const nanoseconds start = now();
    open_at_raw_server(2s, [&](control_message&, welcome& body) {
        body.clocks.received += ahead;
        body.clocks.sent += ahead;
    });
    ASSERT_TRUE(answer.ok());
    expect_offset(ahead, now() - start);
}

TEST_F(control_hostile_server_test, two_processes_of_one_host_have_no_clock_offset) {
    open_at_raw_server(2s, [](control_message&, welcome& body) { body.boot = read_boot_identity(); });
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(watch->clock_offset_ns.load(), 0);
}

/// Processes in another time namespace and copies of a virtual machine have the same boot id.
TEST_F(control_hostile_server_test, the_same_kernel_proves_no_clock) {
    const nanoseconds ahead = 5h;
    const nanoseconds start = now();
    open_at_raw_server(2s, [&](control_message&, welcome& body) {
        body.boot = read_boot_identity();
        body.clocks.received += ahead;
        body.clocks.sent += ahead;
    });
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    expect_offset(ahead, now() - start);
}

TEST(clock_estimate_test, the_shortest_round_trip_counts) {
    clock_estimate clock;
    clock.add({100us, 1000us, 1000us}, 200us);  // round trip 100 us
    EXPECT_EQ(clock.offset(), nanoseconds{850us});
    clock.add({300us, 1000us, 1000us}, 900us);  // 600 us: worse
    EXPECT_EQ(clock.offset(), nanoseconds{850us});
    clock.add({1000us, 2000us, 2010us}, 1030us);  // 20 us: better
    EXPECT_EQ(clock.offset(), nanoseconds{990us});
    clock.add({0us, 1us, 1us}, 1us);  // nothing to compare with
    clock.add({5us, 9us, 8us}, 9us);  // cannot be
    EXPECT_EQ(clock.offset(), nanoseconds{990us});
}

TEST(clock_estimate_test, one_host_has_one_clock_until_a_message_arrives_before_it_was_sent) {
    clock_estimate clock;
    clock.set_same_kernel();
    clock.add({1000us, 1100us, 1200us}, 1350us);
    clock.add({2000us, 1995us, 1995us}, 2005us);  // within the error of a reading
    EXPECT_EQ(clock.offset(), nanoseconds{0});
    clock.add({3000us, 3500us, 3500us}, 3100us);
    EXPECT_EQ(clock.offset(), nanoseconds{-7500}) << "the shortest round trip, which counts now";
    clock.set_same_kernel();
    EXPECT_EQ(clock.offset(), nanoseconds{-7500});
    clock_estimate behind;
    behind.set_same_kernel();
    behind.add({3000us, 2500us, 2500us}, 3100us);
    EXPECT_EQ(behind.offset(), nanoseconds{-550us});
}

TEST(listening_clock_test, time_that_was_not_spent_listening_does_not_count) {
    const nanoseconds before = now();
    listening_clock clock;
    const nanoseconds start = now();
    clock.advance(start + 1h, 2h);
    const nanoseconds first = clock.listened();
    EXPECT_GE(first, 1h);
    EXPECT_LE(first, 1h + (start - before));
    clock.advance(start + 10h, 125ms);
    EXPECT_GE(clock.listened() - first, 125ms);
    EXPECT_LE(clock.listened() - first, 125ms + 10ms);
}

}  // namespace
}  // namespace accel::core::testing
