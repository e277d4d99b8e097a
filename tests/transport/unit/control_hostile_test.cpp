// SPDX-License-Identifier: Apache-2.0
#include "core/control/listener.hpp"
#include "core/control/liveness.hpp"
#include "unit/control_fixture.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

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

TEST_F(control_hostile_test, ends_that_do_not_trust_each_other_say_so_at_once) {
    key_folder folder;
    struct meeting {
        const char* name;
        security_options server;
        security_options client;
        std::string said;    ///< to the client
        std::string logged;  ///< by the server
    };
    const std::vector<meeting> meetings{
        {"an unauthorised key", folder.server(), folder.client("stranger"), folder.key("stranger"),
         folder.key("stranger")},
        {"another server's key", folder.server(), folder.client("client", "stranger.pub"), "key is not trusted here",
         "a client at"},
        {"no key of the client", folder.server(), insecure(), "set key_file and server_key", "refused a client at"},
        {"no key of the server", insecure(), folder.client(), "", "this server is insecure"},
    };
    for (const meeting& each : meetings) {
        SCOPED_TRACE(each.name);
        const log_capture capture;
        listen(each.server);
        const nanoseconds start = now();
        const auto refused = open(keys(each.client), wish());
        ASSERT_EQ(refused.code(), status::unauthorized) << refused.error().message;
        EXPECT_LT(now() - start, patience / 2);
        EXPECT_NE(refused.error().message.find(each.said), std::string::npos) << refused.error().message;
        EXPECT_TRUE(eventually([&] { return capture.text().find(each.logged) != std::string::npos; }))
            << capture.text();
        server.reset();
    }
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

TEST_F(control_hostile_test, messages_cut_anywhere_are_answered_in_order) {
    listen(insecure());
    std::minstd_rand random{3};
    std::vector<std::byte> stream;
    constexpr std::uint64_t count = 300;
    for (std::uint64_t request = 1; request <= count; ++request) {
        const auto bytes =
            random() % 2 == 0 ? encode_control({request, query{}}) : encode_control({request, find_target{"model"}});
        const auto length = static_cast<std::uint32_t>(bytes.size());
        const auto head = std::as_bytes(std::span(&length, 1));
        stream.insert(stream.end(), head.begin(), head.end());
        stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    raw_client client{server->port()};
    for (std::span<const std::byte> left = stream; !left.empty();) {
        const std::size_t size = std::min<std::size_t>(left.size(), 1 + random() % 70);
        EXPECT_TRUE(client.stream().send_raw(left.first(size)));
        left = left.subspan(size);
    }
    for (std::uint64_t request = 1; request <= count; ++request) {
        auto answer = client.receive();
        ASSERT_TRUE(answer.ok()) << request;
        ASSERT_EQ(answer->request, request);
    }
}

TEST_F(control_hostile_test, a_malformed_question_is_refused_with_its_reason) {
    listen(insecure());
    raw_client client{server->port()};
    std::uint64_t request = 0;
    const auto code_of = [&](const auto& body, auto change) {
        auto bytes = encode_control({++request, body});
        change(bytes);
        client.send(bytes);
        auto answer = client.receive();
        EXPECT_TRUE(answer.ok() && answer->request == request);
        const auto* no = answer.ok() ? std::get_if<refused>(&answer->body) : nullptr;
        return no != nullptr ? no->code : status::ok;
    };
    const auto unchanged = [](const auto&) {};
    const auto cut = [](auto& bytes) { bytes.pop_back(); };
    const auto longer = [](auto& bytes) { bytes.push_back(std::byte{0}); };
    const auto of_version_3 = [](auto& bytes) { bytes[4] = std::byte{3}; };
    const hello good{wish(), now()};
    EXPECT_EQ(code_of(good, cut), status::protocol_error);
    EXPECT_EQ(code_of(good, longer), status::protocol_error);
    EXPECT_EQ(code_of(good, of_version_3), status::version_mismatch);
    EXPECT_EQ(code_of(query{}, longer), status::protocol_error);
    EXPECT_EQ(code_of(find_target{"other"}, unchanged), status::not_found);
    EXPECT_EQ(code_of(find_target{"mod\nel"}, unchanged), status::protocol_error);
    EXPECT_EQ(code_of(find_target{""}, unchanged), status::protocol_error);
    EXPECT_EQ(code_of(find_target{"model"}, cut), status::protocol_error);
    EXPECT_EQ(host.opened(), 0U);
    client.send({7, target_found{1}});  // only servers say so
    EXPECT_EQ(code_of(find_target{"model"}, unchanged), status::ok) << "the connection goes on";
    EXPECT_EQ(code_of(good, unchanged), status::ok);
}

TEST_F(control_hostile_test, a_client_ends_and_cancels_only_its_own) {
    listen(insecure());
    auto grant = open(keys(insecure()), wish());
    ASSERT_TRUE(grant.ok());
    raw_client thief{server->port()};
    const std::uint64_t own = open_by_hand(thief);
    for (const std::uint64_t of : {grant->session_id, std::uint64_t{1'000'000}, std::uint64_t{0}})
        thief.send({0, cancel_calls{of, {{1, 1}}}});
    thief.send({0, cancel_calls{own, {{2, 7}, {3, 8}}}});
    EXPECT_TRUE(eventually([&] { return host.cancelled().size() == 2; }));
    const std::vector<std::pair<std::uint64_t, call_id>> only_own{{own, {2, 7}}, {own, {3, 8}}};
    EXPECT_EQ(host.cancelled(), only_own);
    thief.send({0, goodbye{grant->session_id, status::closed}});
    thief.send({0, goodbye{own, status::closed}});
    EXPECT_TRUE(eventually([&] { return host.ended(own) == status::closed; }));
    EXPECT_EQ(host.ended(grant->session_id), status::ok);
    thief.send({0, cancel_calls{own, {{4, 9}}}});
    // Nor does leaving take others along.
    thief.send({0, goodbye{0, status::closed}});
    EXPECT_TRUE(thief.ends());
    EXPECT_EQ(host.ended(grant->session_id), status::ok);
    EXPECT_EQ(host.cancelled(), only_own) << "its session was over";
}

TEST_F(control_hostile_test, a_silent_client_loses_its_sessions_after_one_peer_timeout) {
    constexpr nanoseconds silence = 5s;
    listen(insecure(), silence);
    raw_client client{server->port()};
    raw_client visitor{server->port()};
    visitor.send({1, query{}});
    ASSERT_TRUE(visitor.receive().ok());
    const nanoseconds start = now();
    const std::uint64_t first = open_by_hand(client, 1h);  // an idle server looks as often as its own time demands
    const std::uint64_t second = open_by_hand(client, 1h);
    EXPECT_TRUE(eventually([&] { return host.open() == 0; }));
    EXPECT_GE(now() - start, silence);
    EXPECT_LT(now() - start, 2 * silence - 500ms);
    for (const std::uint64_t each : {first, second}) EXPECT_EQ(host.ended(each), status::peer_lost);
    auto told = client.receive();
    ASSERT_TRUE(told.ok());
    EXPECT_EQ(std::get<goodbye>(told->body).session_id, 0U);
    EXPECT_EQ(std::get<goodbye>(told->body).why, status::peer_lost);
    EXPECT_TRUE(client.ends());
    visitor.send({2, query{}});
    EXPECT_TRUE(visitor.receive().ok()) << "without a session it may be silent";
}

/// A client that waits for its first session has nothing to say; one that has a session shows life meanwhile.
TEST_F(control_hostile_test, the_opening_of_a_first_session_does_not_count_as_silence) {
    listen(insecure(), 2s);
    raw_client waits{server->port()};
    raw_client has_one{server->port()};
    raw_client talks{server->port()};
    const std::uint64_t lost = open_by_hand(has_one, 1h);
    const std::uint64_t kept = open_by_hand(talks, 1h);
    host.hold();
    waits.send({2, hello{wish(1h), now()}});
    ASSERT_TRUE(eventually([&] { return host.asked() == 3; }));
    has_one.send({3, hello{wish(1h), now()}});
    EXPECT_TRUE(eventually([&] {
        talks.send({0, heartbeat{}});
        return host.ended(lost) == status::peer_lost;
    }));
    EXPECT_TRUE(has_one.ends());
    // By now the first has been silent for longer. From its welcome on it may be silent as long as anybody.
    std::this_thread::sleep_for(1500ms);
    host.go_on();
    auto answer = waits.receive();
    ASSERT_TRUE(answer.ok());
    const auto* opened = std::get_if<welcome>(&answer->body);
    ASSERT_NE(opened, nullptr);
    EXPECT_TRUE(eventually([&] { return host.open() == 0; }));
    EXPECT_EQ(host.endings(), (std::vector<std::uint64_t>{lost, kept, opened->grant.session_id}));
    EXPECT_EQ(host.ended(opened->grant.session_id), status::peer_lost);
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

    /// Opens a session at `far`, which changes its welcome first, or its bytes.
    template <class Change, class Spoil>
    void open_at_raw_server(nanoseconds peer_timeout, Change change, Spoil spoil) {
        std::thread client{[&, identity = keys(insecure())] {
            answer = context->control().open_session(own_loopback(), far.port(), identity, wish(peer_timeout), watch,
                                                     deadline_after(patience));
        }};
        if (!std::exchange(accepted_, true)) far.accept();
        const control_message asked = far.receive();
        welcome body;
        body.grant.session_id = 99;
        body.grant.granted = std::get<hello>(asked.body).request.wanted;
        body.grant.peer_timeout = 1s;
        body.clocks = {std::get<hello>(asked.body).sent, now(), now()};
        control_message reply{asked.request, body};
        change(std::get<welcome>(reply.body));
        auto bytes = encode_control(reply);
        spoil(bytes);
        far.client().send(bytes);
        client.join();
    }
    template <class Change>
    void open_at_raw_server(nanoseconds peer_timeout, Change change) {
        open_at_raw_server(peer_timeout, change, [](const auto&) {});
    }
};

TEST_F(control_hostile_server_test, a_silent_server_is_lost_after_one_peer_timeout) {
    constexpr nanoseconds silence = 5s;
    open_at_raw_server(silence, [](const welcome&) {});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    const nanoseconds start = now();
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::peer_lost; }));
    EXPECT_LT(now() - start, 2 * silence - 500ms);
}

TEST_F(control_hostile_server_test, a_welcome_that_does_not_fit_its_hello_is_refused_at_once) {
    using geometry = link_geometry;
    void (*const changes[])(geometry&) = {
        [](geometry& g) { g.slots += 1; },          [](geometry& g) { g.slots -= 1; },
        [](geometry& g) { g.request_bytes += 1; },  [](geometry& g) { g.request_bytes -= 1; },
        [](geometry& g) { g.response_bytes += 1; }, [](geometry& g) { g.response_bytes -= 1; },
    };
    const nanoseconds start = now();
    for (const auto change : changes) {
        SCOPED_TRACE("change " + std::to_string(&change - changes));
        open_at_raw_server(1h, [&](welcome& body) { change(body.grant.granted); });
        EXPECT_EQ(answer.code(), status::protocol_error);
        EXPECT_EQ(std::get<goodbye>(far.receive().body).session_id, 99U) << "the server would keep it";
    }
    for (const std::ptrdiff_t less : {1, 60}) {
        open_at_raw_server(
            1h, [](const welcome&) {}, [&](auto& bytes) { bytes.erase(bytes.end() - less, bytes.end()); });
        EXPECT_EQ(answer.code(), status::protocol_error) << less << " bytes less";
    }
    EXPECT_LT(now() - start, patience / 2) << "none was waited for";
    open_at_raw_server(1h, [](const welcome&) {});
    EXPECT_TRUE(answer.ok()) << "the connection goes on";
}

TEST_F(control_hostile_server_test, only_the_number_of_the_requested_target_is_accepted) {
    const auto ask = [&](control_message reply) {
        result<std::uint32_t> found = error{status::again, 0, ""};
        std::thread client{[&, identity = keys(insecure())] {
            found =
                context->control().find_target(own_loopback(), far.port(), identity, "model", deadline_after(patience));
        }};
        if (!std::exchange(accepted_, true)) far.accept();
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
    EXPECT_EQ(ask({0, targets_listed{{{"model"}, false}}}), status::protocol_error) << "an answer to another question";
}

TEST_F(control_hostile_server_test, only_names_after_the_last_one_are_accepted) {
    const auto ask = [&](control_message reply) {
        result<target_page> listed = error{status::again, 0, ""};
        std::thread client{[&, identity = keys(insecure())] {
            listed =
                context->control().list_targets(own_loopback(), far.port(), identity, "bert", deadline_after(patience));
        }};
        if (!std::exchange(accepted_, true)) far.accept();
        const control_message asked = far.receive();
        EXPECT_EQ(std::get<list_targets>(asked.body).after, "bert");
        reply.request = asked.request;
        far.client().send(reply);
        client.join();
        return listed.code();
    };
    EXPECT_EQ(ask({0, targets_listed{{{"bert2", "model"}, true}}}), status::ok);
    EXPECT_EQ(ask({0, targets_listed{}}), status::ok);
    for (const char* again : {"bert", "a", "ber"})
        EXPECT_EQ(ask({0, targets_listed{{{again, "model"}, true}}}), status::protocol_error) << again;
    EXPECT_EQ(ask({0, targets_listed{{{"z", "y"}, false}}}), status::protocol_error) << "malformed";
    EXPECT_EQ(ask({0, targets_listed{{{}, true}}}), status::protocol_error) << "malformed";
    EXPECT_EQ(ask({0, target_found{7}}), status::protocol_error);
    EXPECT_EQ(ask({0, health_checked{health_state::serving}}), status::protocol_error);
}

TEST_F(control_hostile_server_test, a_goodbye_ends_the_watch_with_its_reason) {
    open_at_raw_server(2s, [](const welcome&) {});
    ASSERT_TRUE(answer.ok());
    far.client().send({0, goodbye{98, status::overloaded}});
    far.client().send({0, goodbye{99, status::closed}});
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::closed; }));
}

/// Processes in another time namespace and copies of a virtual machine have the boot id of another clock.
TEST_F(control_hostile_server_test, clocks_are_compared_unless_they_are_one) {
    struct server_clock {
        bool same_boot;
        nanoseconds ahead;
    };
    for (const server_clock& each : {server_clock{false, 5h}, {true, 5h}, {true, -1s}, {true, 0s}}) {
        SCOPED_TRACE(each.ahead.count());
        context = std::make_shared<context_state>();
        watch = std::make_shared<session_watch>();
        accepted_ = false;
        const nanoseconds start = now();
        open_at_raw_server(2s, [&](welcome& body) {
            if (each.same_boot) body.boot = read_boot_identity();
            body.clocks.received += each.ahead;
            body.clocks.sent += each.ahead;
        });
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        const nanoseconds offset{watch->clock_offset_ns.load()};
        // The error of an exchange is half of its round trip at most.
        const nanoseconds error = each.ahead == 0s ? 0ns : (now() - start) / 2 + 1ns;
        EXPECT_LE(std::chrono::abs(offset - each.ahead), error);
    }
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
