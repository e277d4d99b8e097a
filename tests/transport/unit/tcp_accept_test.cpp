// SPDX-License-Identifier: Apache-2.0
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
using bytes = std::vector<std::byte>;

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
    /// The session still takes its right client.
    void expect_still_attachable() {
        const core::unique_fd good = raw_connection(world.door.port());
        const core::data_preamble p = good_preamble(77);
        write_all(good, &p, sizeof p);
        EXPECT_EQ(answer_to(good), status::ok);
        slot_header h;
        write_all(good, &h, sizeof h);
        serve_until([&] { return !server->arrived.empty(); });
        EXPECT_FALSE(is_closed(good));
    }
    void expect_refused(const core::data_preamble& p, status code = core::no_session_waits) {
        const core::unique_fd peer = raw_connection(world.door.port());
        write_all(peer, &p, sizeof p);
        EXPECT_EQ(answer_to(peer), code);
        serve_until([&] { return is_closed(peer); });
        EXPECT_TRUE(server->arrived.empty() && server->lost.empty());
    }

    tcp_world world;
    std::unique_ptr<end> server;
};

TEST_F(tcp_accept, wrong_token_is_refused) {
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{15}}) {
        core::data_preamble p = good_preamble(77);
        p.token[wrong] ^= std::byte{1};
        expect_refused(p);
    }
    expect_still_attachable();
}

TEST_F(tcp_accept, unknown_session_is_refused) {
    expect_refused(good_preamble(78));
    expect_still_attachable();
}

TEST_F(tcp_accept, foreign_preamble_is_refused) {
    core::data_preamble p = good_preamble(77);
    p.magic[0] = 'G';
    expect_refused(p, status::unauthorized);
    p = good_preamble(77);
    p.version = 99;
    expect_refused(p, status::unauthorized);
    expect_still_attachable();
}

TEST_F(tcp_accept, replayed_token_is_refused) {
    const core::data_preamble p = good_preamble(77);
    const core::unique_fd first = raw_connection(world.door.port());
    write_all(first, &p, sizeof p);
    EXPECT_EQ(answer_to(first), status::ok);
    const core::unique_fd second = raw_connection(world.door.port());
    write_all(second, &p, sizeof p);
    EXPECT_EQ(answer_to(second), core::no_session_waits);
    world.run({}, [polls = 0]() mutable { return ++polls > 200; });
    EXPECT_TRUE(server->lost.empty());
}

TEST_F(tcp_accept, a_token_is_refused_after_its_session_ended) {
    const core::data_preamble p = good_preamble(77);
    {
        const core::unique_fd first = raw_connection(world.door.port());
        write_all(first, &p, sizeof p);
        EXPECT_EQ(answer_to(first), status::ok);
    }
    serve_until([&] { return !server->lost.empty(); });
    const core::unique_fd again = raw_connection(world.door.port());
    write_all(again, &p, sizeof p);
    EXPECT_EQ(answer_to(again), core::no_session_waits);
    EXPECT_EQ(server->lost.size(), 1U);
}

TEST_F(tcp_accept, a_token_is_refused_when_its_session_ends_before_the_client_comes) {
    EXPECT_TRUE(server->path->close());
    const core::data_preamble p = good_preamble(77);
    const core::unique_fd late = raw_connection(world.door.port());
    write_all(late, &p, sizeof p);
    EXPECT_EQ(answer_to(late), core::no_session_waits);
}

TEST_F(tcp_accept, a_preamble_may_come_byte_by_byte_before_requests) {
    const core::unique_fd peer = raw_connection(world.door.port());
    const core::data_preamble p = good_preamble(77);
    bytes stream(sizeof p);
    std::memcpy(stream.data(), &p, sizeof p);
    const bytes payload = random_bytes(33, 1);
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
        slot_header h;
        h.slot = slot;
        h.length = payload.size();
        const auto* from = reinterpret_cast<const std::byte*>(&h);
        stream.insert(stream.end(), from, from + sizeof h);
        stream.insert(stream.end(), payload.begin(), payload.end());
    }
    for (const std::byte& b : stream) {
        write_all(peer, &b, 1);
        for (int i = 0; i < 3; ++i) tcp_world::take(*world.server_poller);
    }
    serve_until([&] { return server->arrived.size() == 2; });
    for (const link_event& e : server->arrived) EXPECT_TRUE(same(e.payload, payload));
}

TEST_F(tcp_accept, garbage_after_the_token_ends_the_link) {
    const core::unique_fd peer = raw_connection(world.door.port());
    const core::data_preamble p = good_preamble(77);
    write_all(peer, &p, sizeof p);
    const bytes garbage(100, std::byte{0xff});
    write_all(peer, garbage.data(), garbage.size());
    serve_until([&] { return !server->lost.empty(); });
    EXPECT_EQ(server->lost[0], status::protocol_error);
    serve_until([&] { return is_closed(peer); });
}

TEST_F(tcp_accept, request_before_the_answer_is_taken_ends_the_link) {
    const core::unique_fd peer = raw_connection(world.door.port());
    const core::data_preamble p = good_preamble(77);
    write_all(peer, &p, sizeof p);
    const slot_header h{};
    write_all(peer, &h, sizeof h);
    write_all(peer, &h, sizeof h);
    serve_until([&] { return !server->lost.empty(); });
    EXPECT_EQ(server->arrived.size(), 1U);
    EXPECT_EQ(server->lost[0], status::protocol_error);
}

TEST_F(tcp_accept, truncation_at_any_offset_is_a_loss_and_no_message) {
    const bytes payload = random_bytes(16, 1);
    slot_header h;
    h.length = payload.size();
    bytes stream(sizeof h);
    std::memcpy(stream.data(), &h, sizeof h);
    stream.insert(stream.end(), payload.begin(), payload.end());
    for (std::size_t length = 0; length < stream.size(); ++length) {
        const std::uint64_t session = 1000 + length;
        auto one = world.open_server({.slots = 1, .request_bytes = 64, .response_bytes = 64}, session);
        {
            const core::unique_fd peer = raw_connection(world.door.port());
            const core::data_preamble p = good_preamble(session);
            write_all(peer, &p, sizeof p);
            write_all(peer, stream.data(), length);
        }
        serve_until([&] { return !one->lost.empty(); });
        EXPECT_TRUE(one->arrived.empty()) << length;
        EXPECT_EQ(one->lost, std::vector<status>{status::peer_lost});
    }
}

TEST(tcp_many, one_poller_serves_a_thousand_sessions) {
    constexpr std::size_t sessions = 1000;
    tcp_world world;
    std::vector<tcp_world::connection> all;
    for (std::size_t i = 0; i < sessions; ++i) {
        all.push_back(world.connect({.slots = 2, .request_bytes = 1024, .response_bytes = 1024}));
        if (i % 100 == 99) tcp_world::take(*world.server_poller);
    }
    for (std::uint32_t round = 1; round <= 3; ++round) {
        const bytes payload = random_bytes(700, round);
        for (auto& c : all) {
            ASSERT_EQ(send_message(*c.client->path, message_kind::request, round % 2, round, payload), status::ok);
        }
        std::size_t answered = 0;
        world.run({}, [&] {
            for (auto& c : all) {
                for (const link_event& e : std::exchange(c.server->arrived, {})) {
                    EXPECT_TRUE(same(e.payload, payload));
                    EXPECT_EQ(send_message(*c.server->path, message_kind::response, e.header.slot, round, e.payload),
                              status::ok);
                    c.server->path->consumed(e.header.slot);
                    ++answered;
                }
            }
            return answered == sessions;
        });
        for (auto& c : all) {
            world.run({&c}, [&] { return !c.client->arrived.empty(); });
            EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
            c.client->arrived.clear();
        }
    }
    for (auto& c : all) EXPECT_TRUE(c.client->lost.empty() && c.server->lost.empty());
}

TEST(tcp_many, connecting_and_ending_leaves_no_descriptor) {
    tcp_world world;
    { auto warm = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = 64}); }
    const std::size_t before = open_descriptors();
    for (std::uint32_t i = 0; i < 10'000; ++i) {
        auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = 64});
        if (i % 3 == 0) {
            ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, {}), status::ok);
            world.run({&c}, [&] { return !c.server->arrived.empty(); });
        }
        if (i % 2 == 0) {
            EXPECT_TRUE(c.client->path->close());
        }
    }
    world.run({}, [polls = 0]() mutable { return ++polls > 200; });
    world.run({}, [&] { return open_descriptors() <= before; });
}

TEST(tcp_many, clients_of_other_threads_come_and_go_while_the_server_polls) {
    tcp_world world;
    constexpr std::uint32_t clients = 4;
    constexpr std::uint64_t rounds = 50;
    std::atomic<bool> stop{false};
    // Opened ahead, activated by the clients' threads as a control plane would.
    std::vector<std::unique_ptr<end>> ends;
    for (std::uint32_t i = 0; i < clients * rounds; ++i) ends.push_back(std::make_unique<end>());
    for (std::uint32_t i = 0; i < clients * rounds; ++i) {
        auto link = world.server_poller->open_link(make_config(
            core::link_role::server, {.slots = 1, .request_bytes = 64, .response_bytes = 64}, i + 1, *ends[i]));
        ASSERT_TRUE(link.ok());
        ends[i]->path = std::move(link).value();
    }
    std::thread server([&] {
        while (!stop.load()) {
            std::array<link_event, 16> events;
            const std::size_t count = world.server_poller->poll(events);
            for (std::size_t i = 0; i < count; ++i) {
                if (events[i].kind != event_kind::arrived) continue;
                end& owner = *static_cast<end*>(events[i].owner);
                EXPECT_EQ(send_message(*owner.path, message_kind::response, 0, events[i].header.generation, {}),
                          status::ok);
                owner.path->consumed(0);
            }
        }
    });
    std::vector<std::thread> threads;
    const int never_ready = ::eventfd(0, EFD_CLOEXEC);
    for (std::uint32_t t = 0; t < clients; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t round = 0; round < rounds; ++round) {
                end& peer = *ends[t * rounds + round];
                peer.path->activate();
                auto events = make_poller(core::link_role::client);
                end mine;
                auto link = events->open_link(make_config(
                    core::link_role::client, {.slots = 1, .request_bytes = 64, .response_bytes = 64}, 0, mine));
                ASSERT_TRUE(link.ok());
                core::link_grant grant{t * rounds + round + 1, {}, "127.0.0.1", {}, world.door.port(), "127.0.0.1"};
                grant.token.fill(std::byte{0x5a});
                core::link& path = **link;
                ASSERT_TRUE(path.attach(grant, core::deadline_after(5s)).ok());
                path.activate();
                ASSERT_EQ(send_message(path, message_kind::request, 0, 9, {}), status::ok);
                const core::nanoseconds deadline = core::deadline_after(patience);
                while (mine.arrived.empty()) {
                    ASSERT_LT(core::now(), deadline);
                    if (events->arm() && t % 2 == 0) {
                        pollfd waited{events->event_fd(), POLLIN, 0};
                        ::poll(&waited, 1, 1000);
                    } else if (t % 2 == 1) {
                        (void)static_cast<tcp_poller&>(*events).doze(never_ready, core::deadline_after(1s));
                    }
                    events->disarm();
                    tcp_world::take(*events);
                }
                EXPECT_TRUE(path.close());
            }
        });
    }
    for (std::thread& t : threads) t.join();
    ::close(never_ready);
    stop = true;
    server.join();
}

}  // namespace
}  // namespace accel::tcp
