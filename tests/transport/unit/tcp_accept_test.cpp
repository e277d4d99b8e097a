// SPDX-License-Identifier: Apache-2.0
#include "tcp_bytes.hpp"
#include "tcp_pair.hpp"

#include <cstring>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

/// How clients come in, and who does not.
namespace accel::tcp {
namespace {

using namespace testing;

/// A peer that writes what it likes.
core::unique_fd raw_connection(std::uint16_t port) {
    auto made = core::connect_to("127.0.0.1", port, core::deadline_after(5s));
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
}

core::data_preamble good_preamble(std::uint64_t session) {
    core::data_preamble p;
    p.session_id = session;
    p.token.fill(std::byte{0x5a});
    return p;
}

void write_all(const core::unique_fd& fd, const void* data, std::size_t size) {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t sent = ::send(fd.get(), from, size, MSG_NOSIGNAL);
        if (sent < 0 && core::wait_ready(fd.get(), POLLOUT, core::deadline_after(5s)) == 0) continue;
        ASSERT_GT(sent, 0);
        from += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

/// The server's answer to a preamble.
status answer_to(const core::unique_fd& fd) {
    std::array<std::byte, core::data_answer_head_bytes> head{};
    if (core::wait_ready(fd.get(), POLLIN, core::deadline_after(10s)) != 0) return status::timed_out;
    if (::recv(fd.get(), head.data(), head.size(), MSG_WAITALL) != static_cast<ssize_t>(head.size()))
        return status::peer_lost;
    return core::decode_data_answer(head).code();
}

/// True once the other side has closed.
bool is_closed(const core::unique_fd& fd) {
    std::array<char, 64> sink;
    const ssize_t got = ::recv(fd.get(), sink.data(), sink.size(), MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
}

/// A descriptor that is readable once `signal` was called.
struct signal_fd {
    core::unique_fd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    void signal() const {
        const std::uint64_t one = 1;
        ASSERT_EQ(::write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
};

TEST(tcp_sleep, a_sleep_ends_with_a_message_a_descriptor_or_its_time) {
    tcp_world world;
    auto c = world.connect();
    const signal_fd client_other;
    const signal_fd server_other;
    auto& client = static_cast<tcp_poller&>(*c.client->events);
    auto& server = static_cast<tcp_poller&>(*world.server_poller);
    tcp_world::take(server);  // the connection that has arrived
    const auto sleep = [](tcp_poller& poller, const signal_fd& other, std::chrono::milliseconds time) {
        if (!poller.arm()) {
            tcp_world::take(poller);  // which may take what the caller waits for
            return false;
        }
        const bool told = poller.doze(other.fd.get(), core::deadline_after(time));
        poller.disarm();
        return told;
    };
    for (std::uint32_t generation = 1; generation <= 5; ++generation) {
        const bytes payload = random_bytes(generation * 30'000, generation);
        ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, generation, payload), status::ok);
        core::nanoseconds start = core::now();
        while (c.server->arrived.empty()) {
            ASSERT_LT(core::now() - start, 5s);
            EXPECT_FALSE(sleep(server, server_other, 5s));
            tcp_world::take(server);
            tcp_world::take(client);
        }
        c.server->arrived.clear();
        c.server->path->consumed(0);
        ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, generation, payload), status::ok);
        while (c.client->arrived.empty()) {
            ASSERT_LT(core::now() - start, 5s);
            EXPECT_FALSE(sleep(client, client_other, 5s));
            tcp_world::take(client);
            tcp_world::take(server);
        }
        EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
        c.client->arrived.clear();
    }
    for (auto& [poller, other] : {std::pair{&client, &client_other}, std::pair{&server, &server_other}}) {
        core::nanoseconds start = core::now();
        while (core::now() - start < 60ms) {
            EXPECT_FALSE(sleep(*poller, *other, 60ms));
            tcp_world::take(*poller);
        }
        EXPECT_LT(core::now() - start, 5s);
        other->signal();
        start = core::now();
        while (!sleep(*poller, *other, 10s)) {
            ASSERT_LT(core::now() - start, 5s);
            tcp_world::take(*poller);
        }
        EXPECT_LT(core::now() - start, 5s);
    }
    // The end of the peer ends a sleep too.
    EXPECT_TRUE(c.server->path->close());
    const core::nanoseconds start = core::now();
    while (c.client->lost.empty()) {
        ASSERT_LT(core::now() - start, 5s);
        (void)sleep(client, client_other, 1s);
        tcp_world::take(client);
    }
}

class tcp_accept : public ::testing::Test {
  protected:
    tcp_accept() : server(world.open_server({.slots = 2, .request_bytes = 256, .response_bytes = 256}, 77)) {}

    template <class Done>
    void serve_until(Done done) {
        world.run({}, done);
    }
    /// A peer that has shown this, and was answered so.
    core::unique_fd peer_with(const core::data_preamble& shown, status answered = status::ok) {
        core::unique_fd made = raw_connection(world.door.port());
        write_all(made, &shown, sizeof shown);
        EXPECT_EQ(answer_to(made), answered);
        return made;
    }
    /// The session still takes its right client.
    void expect_still_attachable() {
        const core::unique_fd good = peer_with(good_preamble(77));
        const slot_header h{};
        write_all(good, &h, sizeof h);
        serve_until([&] { return !server->arrived.empty(); });
        EXPECT_FALSE(is_closed(good));
    }
    void expect_refused(const core::data_preamble& p, status code = core::no_session_waits) {
        const core::unique_fd peer = peer_with(p, code);
        serve_until([&] { return is_closed(peer); });
        EXPECT_TRUE(server->arrived.empty() && server->lost.empty());
    }

    tcp_world world;
    std::unique_ptr<end> server;
};

TEST_F(tcp_accept, a_preamble_with_a_wrong_field_is_refused) {
    for (const std::uint64_t session : {76U, 78U, 0U}) expect_refused(good_preamble(session));
    for (const std::size_t wrong : {0U, 7U, 8U, 15U}) {
        core::data_preamble p = good_preamble(77);
        p.token[wrong] ^= std::byte{1};
        expect_refused(p);
    }
    for (const std::size_t wrong : {0U, 7U}) {
        core::data_preamble p = good_preamble(77);
        p.magic[wrong] = 'G';
        expect_refused(p, status::peer_lost);
    }
    for (const auto wrong : {std::uint8_t{0}, std::uint8_t{2}, std::uint8_t{99}}) {
        core::data_preamble p = good_preamble(77);
        p.version = wrong;
        expect_refused(p, status::peer_lost);
    }
    expect_still_attachable();
}

TEST_F(tcp_accept, a_token_is_taken_once_and_while_its_session_lives) {
    {
        const core::unique_fd first = peer_with(good_preamble(77));
        (void)peer_with(good_preamble(77), core::no_session_waits);  // replayed
        world.run({}, [polls = 0]() mutable { return ++polls > 200; });
        EXPECT_TRUE(server->lost.empty());
    }
    serve_until([&] { return !server->lost.empty(); });
    (void)peer_with(good_preamble(77), core::no_session_waits);  // after its session
    EXPECT_EQ(server->lost.size(), 1U);
    const auto closed_early = world.open_server({.slots = 1, .request_bytes = 64, .response_bytes = 64}, 78);
    EXPECT_TRUE(closed_early->path->close());
    (void)peer_with(good_preamble(78), core::no_session_waits);
}

TEST_F(tcp_accept, a_preamble_and_requests_may_come_byte_by_byte) {
    const core::unique_fd peer = raw_connection(world.door.port());
    const core::data_preamble p = good_preamble(77);
    for (std::size_t i = 0; i < sizeof p; ++i) write_all(peer, reinterpret_cast<const std::byte*>(&p) + i, 1);
    EXPECT_EQ(answer_to(peer), status::ok);
    const bytes payload = random_bytes(33, 1);
    bytes stream = whole(0, 1, payload);
    append(stream, whole(1, 1, payload));
    for (const std::byte& b : stream) {
        write_all(peer, &b, 1);
        for (int i = 0; i < 3; ++i) tcp_world::take(*world.server_poller);
    }
    serve_until([&] { return server->arrived.size() == 2; });
    for (const link_event& e : server->arrived) EXPECT_TRUE(same(e.payload, payload));
}

TEST_F(tcp_accept, a_client_that_breaks_the_protocol_is_disconnected) {
    bytes two_in_a_slot = whole(0, 1, {});
    append(two_in_a_slot, whole(0, 2, {}));
    std::uint64_t session = 100;
    for (const bytes& sent : {bytes(100, std::byte{0xff}), two_in_a_slot}) {
        auto one = world.open_server({.slots = 2, .request_bytes = 256, .response_bytes = 256}, ++session);
        const core::unique_fd peer = peer_with(good_preamble(session));
        write_all(peer, sent.data(), sent.size());
        serve_until([&] { return !one->lost.empty(); });
        EXPECT_EQ(one->lost[0], status::protocol_error);
        EXPECT_EQ(one->arrived.size(), sent == two_in_a_slot ? 1U : 0U);
        serve_until([&] { return is_closed(peer); });
    }
    expect_still_attachable();
}

TEST_F(tcp_accept, truncation_at_any_offset_is_a_loss_and_no_message) {
    const bytes stream = whole(0, 1, random_bytes(16, 1));
    for (std::size_t length = 0; length < stream.size(); ++length) {
        const std::uint64_t session = 1000 + length;
        auto one = world.open_server({.slots = 1, .request_bytes = 64, .response_bytes = 64}, session);
        write_all(peer_with(good_preamble(session)), stream.data(), length);
        serve_until([&] { return !one->lost.empty(); });
        EXPECT_TRUE(one->arrived.empty()) << length;
        EXPECT_EQ(one->lost, std::vector<status>{status::peer_lost});
    }
}

}  // namespace
}  // namespace accel::tcp
