// SPDX-License-Identifier: Apache-2.0
#include "core/control/client_limits.hpp"
#include "unit/control_fixture.hpp"

#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace accel::core::testing {
namespace {

/// What strangers and greedy clients may take of a server's port.
struct control_limits_test : control_test {
    [[nodiscard]] std::vector<unique_fd> strangers(std::size_t count, std::string_view first_bytes = {}) {
        std::vector<unique_fd> out;
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(connect_raw(server->port()));
            if (first_bytes.empty()) continue;
            EXPECT_GT(::send(out.back().get(), first_bytes.data(), first_bytes.size(), MSG_NOSIGNAL), 0);
        }
        return out;
    }
    /// From so many addresses of this host, one connection each.
    [[nodiscard]] std::vector<unique_fd> crowd(std::size_t count) const {
        std::vector<unique_fd> out;
        for (std::size_t i = 0; i < count; ++i) {
            unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            sockaddr_in at{};
            at.sin_family = AF_INET;
            at.sin_addr.s_addr = htonl(0x7f'4d'00'01U + static_cast<std::uint32_t>(i));
            EXPECT_EQ(::bind(made.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
            EXPECT_EQ(::inet_pton(AF_INET, own_loopback().c_str(), &at.sin_addr), 1);
            at.sin_port = htons(server->port());
            EXPECT_EQ(::connect(made.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
            out.push_back(std::move(made));
        }
        return out;
    }
    /// The server closes the connection within `within`.
    [[nodiscard]] static bool closed(const unique_fd& socket, nanoseconds within) {
        const nanoseconds deadline = deadline_after(within);
        while (now() < deadline) {
            std::array<char, 64> room;
            const ssize_t got = ::recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
            std::this_thread::sleep_for(1ms);
        }
        return false;
    }
};

TEST_F(control_limits_test, silent_connections_are_closed_in_time) {
    limits.half_open_timeout = 300ms;
    listen(insecure());
    const auto silent = strangers(3);
    const auto slow = strangers(1, "A");
    const nanoseconds start = now();
    for (const unique_fd& each : silent) EXPECT_TRUE(closed(each, patience));
    EXPECT_TRUE(closed(slow[0], patience));
    EXPECT_GE(now() - start, 250ms);
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
}

TEST_F(control_limits_test, strangers_push_out_only_the_oldest_strangers) {
    limits.max_half_open = 16;
    limits.half_open_timeout = 1h;
    listen(insecure());
    raw_client known{server->port()};
    known.send({1, hello{wish(1h), now()}});
    ASSERT_TRUE(known.receive().ok());
    const auto beside = strangers(2);  // data connections of that client, perhaps
    const auto silent = crowd(100);
    for (std::size_t i = 0; i < 100 - 14; ++i) ASSERT_TRUE(closed(silent[i], patience)) << i;
    for (std::size_t i = 100 - 14; i < 100; ++i) EXPECT_FALSE(closed(silent[i], 1ms)) << i;
    for (const unique_fd& each : beside) EXPECT_FALSE(closed(each, 1ms));
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
    // The same from one address, that of the clients.
    const std::size_t before = open_descriptors();
    const auto more = strangers(100);
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= before + 100; })) << open_descriptors();
    EXPECT_TRUE(closed(beside[0], patience));
    EXPECT_TRUE(closed(more[0], patience)) << "the oldest gives way";
    EXPECT_FALSE(closed(more[99], 1ms));
    context = std::make_shared<context_state>();
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
}

TEST_F(control_limits_test, idle_connections_give_way_to_clients_that_open_a_session) {
    limits.max_client_connections = 3;
    listen(insecure());
    std::vector<std::unique_ptr<raw_client>> idle;
    for (int i = 0; i < 3; ++i) {
        idle.push_back(std::make_unique<raw_client>(server->port()));
        idle.back()->send({1, query{}});
        ASSERT_TRUE(idle.back()->receive().ok());
    }
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
    EXPECT_TRUE(idle.front()->ends()) << "the oldest";
}

TEST_F(control_limits_test, connections_without_a_session_are_closed_after_a_while) {
    limits.idle_timeout = 300ms;
    listen(insecure());
    raw_client idle{server->port()};
    idle.send({1, query{}});
    ASSERT_TRUE(idle.receive().ok());
    EXPECT_TRUE(idle.ends());
}

TEST_F(control_limits_test, hellos_of_a_closed_connection_do_not_delay_others) {
    listen(insecure());
    host.hold();
    {
        raw_client leaver{server->port()};
        for (std::uint64_t i = 1; i <= 60; ++i) leaver.send({i, hello{wish(), now()}});
        ASSERT_TRUE(eventually([&] { return host.asked() == 1; }));
    }
    raw_client other{server->port()};
    for (std::uint64_t i = 1; i <= 3; ++i) {  // by then the server knows that the connection has ended
        other.send({i, query{}});
        ASSERT_TRUE(other.receive().ok());
    }
    other.send({4, hello{wish(), now()}});
    host.go_on();
    ASSERT_TRUE(other.receive().ok());
    EXPECT_EQ(host.opened(), 2U);
}

TEST_F(control_limits_test, a_client_that_asks_without_pause_is_slowed_but_kept) {
    listen(insecure());
    raw_client client{server->port()};
    const nanoseconds start = now();
    unsigned answers = 0;
    for (; now() - start < 5s; ++answers) {
        client.send({1, query{}});
        ASSERT_TRUE(client.receive().ok()) << "after " << answers << " answers";
    }
    EXPECT_LT(answers, 4096U + 2048U * 6U) << "it was not slowed";
}

TEST_F(control_limits_test, a_frame_that_is_too_long_ends_its_connection) {
    listen(insecure());
    raw_client longest{server->port()};
    longest.send(std::vector<std::byte>(max_control_bytes, std::byte{1}));
    longest.send({1, query{}});
    EXPECT_TRUE(longest.receive().ok()) << "it was malformed, no more";
    for (const std::uint32_t length : {0U, 2049U, 0xffffffffU}) {
        raw_client client{server->port()};
        EXPECT_TRUE(client.stream().send_raw(std::as_bytes(std::span(&length, 1))));
        EXPECT_TRUE(client.ends()) << length;
    }
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
}

TEST_F(control_limits_test, a_client_that_reads_nothing_is_disconnected) {
    listen(insecure());
    raw_client client{server->port()};
    const int small = 4096;
    ::setsockopt(client.stream().fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    // Each query of 20 bytes has an answer; none is read.
    const nanoseconds deadline = deadline_after(60s);
    bool gone = false;
    std::size_t asked = 0;
    for (; !gone && now() < deadline; ++asked) {
        gone = !client.stream().send({7, query{}});
        pollfd hung{client.stream().fd(), 0, 0};
        ::poll(&hung, 1, 0);
        gone = gone || (hung.revents & (POLLHUP | POLLERR)) != 0;
    }
    EXPECT_TRUE(gone) << "what waits for it is bounded";
    EXPECT_LT(asked, 1'000'000U) << "not only when TCP gives up: the kernel's buffers take some ten thousands";
    EXPECT_TRUE(open(keys(insecure()), wish()).ok());
}

TEST_F(control_limits_test, a_revoked_key_loses_its_sessions) {
    key_folder folder;
    folder.authorize({"client", "stranger"});
    listen(folder.server());
    auto grant = open(keys(folder.client()), wish());
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    const auto other_watch = std::make_shared<session_watch>();
    auto other = context->control().open_session(own_loopback(), server->port(), keys(folder.client("stranger")),
                                                 wish(), other_watch, deadline_after(patience));
    ASSERT_TRUE(other.ok()) << other.error().message;
    folder.authorize({"client"});
    EXPECT_TRUE(eventually([&] { return other_watch->ended() == status::unauthorized; }));
    EXPECT_TRUE(eventually([&] { return host.ended(other->session_id) == status::unauthorized; }));
    EXPECT_EQ(watch->ended(), status::ok);
    EXPECT_EQ(host.ended(grant->session_id), status::ok);
    EXPECT_EQ(open(keys(folder.client("stranger")), wish()).code(), status::unauthorized);
}

/// Two clients with one key, which know their server by files of their own.
struct known_servers : control_limits_test {
    known_servers() {
        folder.replace("other.pub", "server.pub");
        listen(folder.server());
    }
    [[nodiscard]] result<session_grant> open_other() {
        return context->control().open_session(own_loopback(), server->port(),
                                               keys(folder.client("client", "other.pub")), wish(), other_watch,
                                               deadline_after(patience));
    }
    key_folder folder;
    std::shared_ptr<session_watch> other_watch = std::make_shared<session_watch>();
};

TEST_F(known_servers, replacing_a_server_key_ends_its_sessions) {
    auto grant = open(keys(folder.client()), wish());
    auto other = open_other();
    ASSERT_TRUE(grant.ok() && other.ok());
    const log_capture log;
    folder.replace("server.pub", "stranger.pub");
    EXPECT_TRUE(eventually([&] { return watch->ended() == status::unauthorized; }));
    EXPECT_TRUE(eventually([&] { return host.ended(grant->session_id) == status::peer_lost; }))
        << to_string(host.ended(grant->session_id));
    EXPECT_NE(log.text().find("is no longer trusted"), std::string::npos) << log.text();
    EXPECT_EQ(other_watch->ended(), status::ok) << "its file has not changed";
    EXPECT_EQ(host.ended(other->session_id), status::ok);
    EXPECT_EQ(open(keys(folder.client()), wish()).code(), status::unauthorized);
}

TEST_F(known_servers, a_rewritten_or_unreadable_server_key_keeps_its_sessions) {
    ASSERT_TRUE(open(keys(folder.client()), wish()).ok());
    const log_capture log(log_level::info);
    const auto comes_to_nothing = [&](const char* logged) {
        ASSERT_TRUE(eventually([&] { return log.text().find(logged) != std::string::npos; })) << log.text();
        ASSERT_TRUE(open_other().ok()) << "after the thread has judged";
        EXPECT_EQ(watch->ended(), status::ok);
    };
    folder.replace("server.pub", "other.pub");
    comes_to_nothing("loaded again");
    std::filesystem::remove(folder.file("server.pub"));
    comes_to_nothing("stay in use");
}

TEST(token_bucket_test, a_token_bucket_allows_a_burst_and_then_a_rate) {
    const nanoseconds start = now();
    token_bucket bucket(3, 10);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(bucket.take(start));
    EXPECT_FALSE(bucket.take(start));
    EXPECT_GT(bucket.time_until(1), 0ms);
    EXPECT_TRUE(bucket.take(start + 150ms));
    EXPECT_FALSE(bucket.take(start + 150ms));
    bucket.refill(start + 10s);
    EXPECT_TRUE(bucket.full());
}

TEST(handshake_limits_test, each_of_a_bounded_number_of_addresses_has_handshakes_of_its_own) {
    handshake_limits limits(2, 1);
    const nanoseconds at = now();
    for (const char* address : {"192.0.2.1", "192.0.2.2"}) {
        EXPECT_TRUE(limits.take(address, at));
        EXPECT_TRUE(limits.take(address, at));
        EXPECT_FALSE(limits.take(address, at));
    }
    int allowed = 0;
    for (int i = 0; i < 5'000; ++i) allowed += limits.take("a" + std::to_string(i), at) ? 1 : 0;
    EXPECT_EQ(allowed, 4096 - 2 + 2) << "the others share one bucket";
    // Once the first are idle, they are forgotten.
    EXPECT_TRUE(limits.take("b", at + 10s));
    EXPECT_TRUE(limits.take("b", at + 10s));
    EXPECT_TRUE(limits.take("c", at + 10s));
}

}  // namespace
}  // namespace accel::core::testing
