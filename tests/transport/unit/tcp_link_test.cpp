// SPDX-License-Identifier: Apache-2.0
#include "patience.hpp"
#include "tcp_bytes.hpp"
#include "tcp_pair.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Links over loopback sockets, both ends polled by one thread.
namespace accel::tcp {
namespace {

using namespace testing;

slice make_slice(bytes& memory) {
    struct layout {
        std::byte* data;
        std::size_t size;
        const core::region_state* region;
    };
    return std::bit_cast<slice>(layout{memory.data(), memory.size(), some_region()});
}

/// One request and its answer of the same bytes.
void echo(tcp_world& world, tcp_world::connection& c, std::uint32_t slot, std::uint32_t generation,
          const bytes& payload) {
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, slot, generation, payload), status::ok);
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    ASSERT_EQ(c.server->arrived.size(), 1U);
    const link_event request = c.server->arrived[0];
    c.server->arrived.clear();
    ASSERT_TRUE(same(request.payload, payload));
    ASSERT_EQ(request.header.generation, generation);
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, slot, generation, request.payload), status::ok);
    c.server->path->consumed(slot);
    world.run({&c}, [&] { return !c.client->arrived.empty(); });
    ASSERT_EQ(c.client->arrived.size(), 1U);
    ASSERT_TRUE(same(c.client->arrived[0].payload, payload));
    ASSERT_EQ(c.client->arrived[0].header.length, payload.size());
    c.client->arrived.clear();
    c.client->path->consumed(slot);
}

/// A slot's call, and the memory that both ends lend for it.
struct random_call {
    std::uint32_t generation = 0;
    bytes asked;
    bytes lent;  ///< by the client; empty: it is in the slot
    bytes room;  ///< for the response; empty: it goes to the slot
    bool given_up = false;
    bool overwritten = false;
    bytes answer;
    bytes lent_answer;
    bool answered = false;  ///< the client has its response
    bool released = true;   ///< the server has its memory back
    bool running = false;
};

/// Calls in all slots of one connection. Memory is overwritten as soon as its owner has it back.
class random_caller {
  public:
    static constexpr std::size_t most = 1 << 20;
    static constexpr std::uint32_t slots = 8;

    random_caller(tcp_world& world, bool zerocopy, std::uint32_t seed)
        : random_(seed),
          c_(world.connect({.slots = slots, .request_bytes = most, .response_bytes = most, .zerocopy = zerocopy})) {}

    void ask() {
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            random_call& call = calls_[slot];
            if (call.running || pick(4) == 0) continue;
            call = {};
            call.running = true;
            call.generation = ++generation_;
            call.asked = some_bytes();
            if (!call.asked.empty() && pick(2) == 0) call.lent = call.asked;
            if (pick(2) == 0) call.room = bytes(most);
            const slice into = call.room.empty() ? slice{} : make_slice(call.room);
            const auto* const region = call.lent.empty() ? nullptr : some_region();
            const bytes& from = call.lent.empty() ? call.asked : call.lent;
            ASSERT_EQ(send_message(*c_.client->path, message_kind::request, slot, call.generation, from, region, into),
                      status::ok);
            if (pick(4) == 0) give_up(slot);
        }
        if (pick(2) == 0) give_up(pick(slots));
    }
    void serve() {
        for (const link_event& e : std::exchange(c_.server->arrived, {})) {
            random_call& call = calls_[e.header.slot];
            ASSERT_EQ(e.header.generation, call.generation);
            ASSERT_TRUE(same(e.payload, call.asked));
            call.answer = some_bytes();
            call.released = call.answer.empty() || pick(2) == 0;
            if (!call.released) call.lent_answer = call.answer;
            c_.server->path->consumed(e.header.slot);
            ASSERT_EQ(
                send_message(*c_.server->path, message_kind::response, e.header.slot, call.generation,
                             call.released ? call.answer : call.lent_answer, call.released ? nullptr : some_region()),
                status::ok);
        }
        for (const std::uint32_t slot : std::exchange(c_.server->released, {})) {
            ASSERT_FALSE(std::exchange(calls_[slot].released, true)) << "nothing was lent";
            std::ranges::fill(calls_[slot].lent_answer, std::byte{0xdd});
            settle(slot);
        }
    }
    void take() {
        for (const link_event& e : std::exchange(c_.client->arrived, {})) {
            random_call& call = calls_[e.header.slot];
            ASSERT_FALSE(std::exchange(call.answered, true));
            ASSERT_EQ(e.header.length, call.answer.size());
            ASSERT_TRUE(same(e.payload, call.answer));
            const auto untouched = [](std::byte each) { return each == std::byte{0x11}; };
            ASSERT_TRUE(!call.overwritten || std::ranges::all_of(call.room, untouched));
            ASSERT_EQ(e.payload.data() == call.room.data(), !call.given_up && !call.room.empty());
            c_.client->path->consumed(e.header.slot);
            settle(e.header.slot);
        }
        ASSERT_TRUE(c_.client->lost.empty() && c_.server->lost.empty());
    }
    [[nodiscard]] bool has_news() const {
        return !c_.server->arrived.empty() || !c_.server->released.empty() || !c_.client->arrived.empty();
    }
    [[nodiscard]] int completed() const { return completed_; }
    [[nodiscard]] tcp_world::connection& connection() { return c_; }

  private:
    [[nodiscard]] std::uint32_t pick(std::size_t below) { return static_cast<std::uint32_t>(random_() % below); }
    [[nodiscard]] bytes some_bytes() {
        constexpr std::array<std::size_t, 12> edges{
            0, 1, 64, 4031, 4032, 4033, 65536, fragment_bytes - 1, fragment_bytes, fragment_bytes + 1, most - 1, most};
        const std::uint32_t kind = pick(8);
        const std::size_t size = kind < 2 ? edges[pick(edges.size())] : kind == 2 ? pick(most + 1) : pick(9000);
        return random_bytes(size, static_cast<std::uint32_t>(random_()));
    }
    void give_up(std::uint32_t slot) {
        random_call& call = calls_[slot];
        if (!call.running || call.answered || call.given_up) return;
        call.given_up = true;
        if (!c_.client->path->retract(slot)) return;  // the kernel still reads what was lent
        std::ranges::fill(call.lent, std::byte{0xee});
        std::ranges::fill(call.room, std::byte{0x11});
        call.overwritten = true;
    }
    void settle(std::uint32_t slot) {
        random_call& call = calls_[slot];
        if (!call.answered || !call.released) return;
        call.running = false;
        ++completed_;
    }

    std::minstd_rand random_;
    tcp_world::connection c_;
    std::array<random_call, slots> calls_;
    std::uint32_t generation_ = 0;
    int completed_ = 0;
};

TEST(tcp_link, random_messages_in_all_slots_arrive) {
    tcp_world world;
    random_caller plain(world, false, 7);
    random_caller pinned(world, true, 8);
    while (plain.completed() + pinned.completed() < tests::effort(500) && !::testing::Test::HasFailure()) {
        for (random_caller* each : {&plain, &pinned}) each->ask();
        world.run({&plain.connection(), &pinned.connection()}, [&] { return plain.has_news() || pinned.has_news(); });
        for (random_caller* each : {&plain, &pinned}) {
            each->serve();
            each->take();
        }
    }
}

TEST(tcp_link, works_over_ipv6_and_names) {
    for (const char* host : {"::1", "localhost"}) {
        if (!core::listen_on(host, 0).ok()) {
            GTEST_SKIP() << "no " << host << " here";
        }
        tcp_world world(host);
        auto c = world.connect();
        echo(world, c, 0, 1, random_bytes(1000, 1));
    }
}

/// Ranges that are longer than one read takes, and more than one call may name.
TEST(tcp_link, responses_are_scattered_and_given_up) {
    constexpr std::size_t large = 16 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = large});
    std::uint32_t generation = 0;
    for (const auto& [count, each] : {std::pair<std::size_t, std::size_t>{2, large / 2}, {large / 4096, 4096}}) {
        for (const bool given_up : {false, true}) {
            torn_memory into(count, each);
            const bytes payload = random_bytes(large, 3 + ++generation);
            core::slot_header h = testing::request(0, generation, 0);
            std::memcpy(c.client->path->send().header(0), &h, sizeof h);
            core::outgoing asked{0, {c.client->path->send().payload(0), 0}, nullptr, {}};
            asked.response_ranges = into.ranges();
            asked.response_bytes = into.size();
            ASSERT_EQ(c.client->path->deliver(asked), status::ok);
            world.run({&c}, [&] { return !c.server->arrived.empty(); });
            c.server->arrived.clear();
            c.server->path->consumed(0);
            ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, generation, payload), status::ok);
            if (given_up) {
                world.run({&c}, [&] { return same({into.ranges()[0].data, 16}, std::span(payload).first(16)); });
                ASSERT_TRUE(c.client->arrived.empty());
                ASSERT_TRUE(c.client->path->retract(0));
                into.fill(std::byte{2});
            }
            world.run({&c}, [&] { return !c.client->arrived.empty(); });
            EXPECT_TRUE(given_up ? into.all(std::byte{2}) : into.has(payload));
            EXPECT_TRUE(!given_up || same(c.client->arrived[0].payload, payload));
            c.client->arrived.clear();
        }
    }
}

TEST(tcp_link, the_end_of_the_peer_is_reported_at_once) {
    tcp_world world;
    auto c = world.connect();
    echo(world, c, 0, 1, random_bytes(10, 1));
    EXPECT_TRUE(c.server->path->close());
    world.run({&c}, [&] { return !c.client->lost.empty(); });
    EXPECT_EQ(c.client->lost, std::vector<status>{status::peer_lost});
    EXPECT_EQ(send_message(*c.client->path, message_kind::request, 0, 2, {}), status::peer_lost);
    EXPECT_TRUE(c.client->path->close());
    EXPECT_TRUE(c.client->path->close());
    world.run_for(c, 5ms);
    EXPECT_EQ(c.client->lost.size(), 1U);
}

TEST(tcp_link, close_of_the_client_is_a_loss_only_in_mid_message) {
    constexpr std::size_t large = 16 << 20;
    for (const bool cut : {false, true}) {
        tcp_world world;
        auto c = world.connect({.slots = 1, .request_bytes = large, .response_bytes = 64});
        const bytes payload = random_bytes(cut ? large : 100'000, 1);
        ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, payload), status::ok);
        if (cut) world.run({}, [&, polls = 0]() mutable { return ++polls > 3; });
        EXPECT_TRUE(c.client->path->close());
        world.run({&c}, [&] { return !c.server->lost.empty(); });
        EXPECT_EQ(c.server->lost, std::vector<status>{cut ? status::peer_lost : status::closed});
        EXPECT_EQ(c.server->arrived.size(), cut ? 0U : 1U);
    }
}

TEST(tcp_link, close_does_not_wait_for_a_silent_peer_for_long) {
    constexpr std::size_t large = 32 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = large});
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, {}), status::ok);
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, 1, random_bytes(large, 9)), status::ok);
    const core::nanoseconds start = core::now();
    while (!c.server->path->close()) ASSERT_LT(core::now() - start, 30s);
}

TEST(tcp_link, slow_reader_does_not_stall_others) {
    constexpr std::size_t large = 8 << 20;
    tcp_world world;
    auto slow = world.connect({.slots = 4, .request_bytes = 64, .response_bytes = large});
    auto other = world.connect();
    const bytes payload = random_bytes(large, 1);
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
        ASSERT_EQ(send_message(*slow.client->path, message_kind::request, slot, 1, {}), status::ok);
    }
    world.run({}, [&] { return slow.server->arrived.size() == 4; });
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
        ASSERT_EQ(send_message(*slow.server->path, message_kind::response, slot, 1, payload), status::ok);
    }
    // The slow client is not polled meanwhile.
    for (std::uint32_t i = 1; i <= 200; ++i) echo(world, other, i % 8, i, random_bytes(i * 10, i));
    EXPECT_TRUE(slow.client->arrived.empty());
    world.run({&slow}, [&] { return slow.client->arrived.size() == 4; });
    for (const link_event& e : slow.client->arrived) EXPECT_TRUE(same(e.payload, payload));
}

TEST(tcp_link, answer_before_the_whole_request_ends_the_link) {
    constexpr std::size_t large = 64 << 20;  // more than the kernel's buffers take
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = large, .response_bytes = 64});
    echo(world, c, 0, 1, random_bytes(64, 1));
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 2, random_bytes(large, 1)), status::ok);
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, 2, random_bytes(64, 2)), status::ok);
    // The server is not polled: it reads nothing.
    const core::nanoseconds deadline = core::deadline_after(patience);
    while (c.client->lost.empty() && c.client->arrived.empty() && core::now() < deadline)
        tcp_world::take(*c.client->events);
    EXPECT_TRUE(c.client->arrived.empty());
    ASSERT_EQ(c.client->lost.size(), 1U);
    EXPECT_EQ(c.client->lost[0], status::protocol_error);
}

TEST(tcp_link, bad_messages_are_not_delivered) {
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = 128, .response_bytes = 128});
    EXPECT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, random_bytes(129, 1), some_region()),
              status::message_too_large);
    EXPECT_EQ(c.client->path->deliver({.slot = 2, .payload = {}, .region = nullptr, .response_into = {}}),
              status::invalid_state);
    echo(world, c, 0, 1, random_bytes(128, 1));
}

}  // namespace
}  // namespace accel::tcp
