// SPDX-License-Identifier: Apache-2.0
#include "patience.hpp"
#include "tcp_pair.hpp"

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

/// Links over loopback sockets, both ends polled by one thread.
namespace accel::tcp {
namespace {

using namespace testing;
using bytes = std::vector<std::byte>;

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

TEST(tcp_link, echoes_every_size) {
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = 4 << 20, .response_bytes = 4 << 20});
    std::uint32_t generation = 0;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{4031}, std::size_t{4032}, std::size_t{4033},
          std::size_t{65536}, fragment_bytes, fragment_bytes + 1, std::size_t{4} << 20}) {
        ++generation;
        echo(world, c, generation % 2, generation, random_bytes(size, generation));
    }
}

TEST(tcp_link, random_messages_in_all_slots_arrive) {
    constexpr std::size_t most = 4 << 20;
    constexpr std::uint32_t slots = 8;
    tcp_world world;
    auto c = world.connect({.slots = slots, .request_bytes = most, .response_bytes = most});
    std::minstd_rand random(7);
    std::array<bytes, slots> payload;
    std::array<bool, slots> in_flight{};
    std::uint32_t generation = 0;
    int completed = 0;
    while (completed < tests::effort(400)) {
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            if (in_flight[slot]) continue;
            const std::size_t size = random() % 4 == 0 ? random() % (most + 1) : random() % 9000;
            payload[slot] = random_bytes(size, ++generation);
            in_flight[slot] = true;
            ASSERT_EQ(send_message(*c.client->path, message_kind::request, slot, generation, payload[slot]),
                      status::ok);
        }
        world.run({&c}, [&] { return !c.server->arrived.empty() || !c.client->arrived.empty(); });
        for (const link_event& e : std::exchange(c.server->arrived, {})) {
            ASSERT_TRUE(same(e.payload, payload[e.header.slot]));
            ASSERT_EQ(
                send_message(*c.server->path, message_kind::response, e.header.slot, e.header.generation, e.payload),
                status::ok);
            c.server->path->consumed(e.header.slot);
        }
        for (const link_event& e : std::exchange(c.client->arrived, {})) {
            ASSERT_TRUE(same(e.payload, payload[e.header.slot]));
            in_flight[e.header.slot] = false;
            ++completed;
        }
        ASSERT_TRUE(c.client->lost.empty() && c.server->lost.empty());
    }
}

TEST(tcp_link, short_message_overtakes_a_long_one) {
    constexpr std::size_t large = 64 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = large, .response_bytes = 64});
    const bytes big = random_bytes(large, 1);
    const bytes small = random_bytes(64, 2);
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, big, some_region()), status::ok);
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 1, 1, small), status::ok);
    world.run({&c}, [&] { return c.server->arrived.size() == 2; });
    EXPECT_EQ(c.server->arrived[0].header.slot, 1U);
    EXPECT_TRUE(same(c.server->arrived[0].payload, small));
    EXPECT_TRUE(same(c.server->arrived[1].payload, big));
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

TEST(tcp_link, a_response_goes_to_its_target) {
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = 64, .response_bytes = 1 << 20});
    for (const std::size_t size : {std::size_t{10}, std::size_t{1} << 20}) {
        bytes room(1 << 20);
        const bytes payload = random_bytes(size, 3);
        ASSERT_EQ(
            send_message(*c.client->path, message_kind::request, 1, 4, random_bytes(8, 1), nullptr, make_slice(room)),
            status::ok);
        world.run({&c}, [&] { return !c.server->arrived.empty(); });
        c.server->arrived.clear();
        c.server->path->consumed(1);
        ASSERT_EQ(send_message(*c.server->path, message_kind::response, 1, 4, payload), status::ok);
        world.run({&c}, [&] { return !c.client->arrived.empty(); });
        EXPECT_EQ(c.client->arrived[0].payload.data(), room.data());
        EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
        c.client->arrived.clear();
    }
}

TEST(tcp_link, a_retract_in_mid_send_leaves_lent_memory_alone) {
    constexpr std::size_t large = 16 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = large, .response_bytes = large});
    bytes lent = random_bytes(large, 1);
    const bytes sent = lent;
    bytes room(large);
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, lent, some_region(), make_slice(room)),
              status::ok);
    ASSERT_TRUE(c.client->path->retract(0));
    std::fill(lent.begin(), lent.end(), std::byte{0xee});
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    EXPECT_TRUE(same(c.server->arrived[0].payload, sent));
    c.server->path->consumed(0);
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, 1, sent), status::ok);
    world.run({&c}, [&] { return !c.client->arrived.empty(); });
    EXPECT_TRUE(same(c.client->arrived[0].payload, sent));
    EXPECT_EQ(room, bytes(large)) << "written after retract";
}

TEST(tcp_link, a_retract_in_mid_response_leaves_its_target_alone) {
    constexpr std::size_t large = 16 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = large});
    bytes room(large);
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, {}, nullptr, make_slice(room)), status::ok);
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    const bytes payload = random_bytes(large, 9);
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, 1, payload), status::ok);
    world.run({&c}, [&] { return room[0] == payload[0] && room[1] == payload[1]; });
    ASSERT_TRUE(c.client->arrived.empty());
    ASSERT_TRUE(c.client->path->retract(0));
    const bytes before = room;
    world.run({&c}, [&] { return !c.client->arrived.empty(); });
    EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
    EXPECT_EQ(room, before);
}

TEST(tcp_link, the_server_reports_when_a_lent_answer_is_sent) {
    constexpr std::size_t large = 16 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = large});
    const bytes payload = random_bytes(large, 9);
    for (std::uint32_t generation = 1; generation <= 2; ++generation) {
        ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, generation, {}), status::ok);
        world.run({&c}, [&] { return !c.server->arrived.empty(); });
        c.server->arrived.clear();
        c.server->path->consumed(0);
        ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, generation, payload, some_region()),
                  status::ok);
        tcp_world::take(*world.server_poller);
        EXPECT_TRUE(c.server->released.empty()) << "most of it cannot be sent yet";
        world.run({&c}, [&] { return !c.client->arrived.empty() && !c.server->released.empty(); });
        EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
        EXPECT_EQ(c.server->released, std::vector<std::uint32_t>{0});
        c.client->arrived.clear();
        c.server->released.clear();
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

TEST(tcp_link, close_of_the_client_is_not_a_loss) {
    tcp_world world;
    auto c = world.connect();
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, random_bytes(100'000, 1)), status::ok);
    EXPECT_TRUE(c.client->path->close());
    world.run({&c}, [&] { return !c.server->lost.empty(); });
    EXPECT_EQ(c.server->lost, std::vector<status>{status::closed});
    EXPECT_EQ(c.server->arrived.size(), 1U);
}

TEST(tcp_link, a_loss_in_mid_message_is_reported_at_both_ends) {
    constexpr std::size_t large = 16 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = large, .response_bytes = 64});
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, random_bytes(large, 1)), status::ok);
    world.run({}, [&, polls = 0]() mutable { return ++polls > 3; });
    EXPECT_TRUE(c.client->path->close());
    world.run({&c}, [&] { return !c.server->lost.empty(); });
    EXPECT_EQ(c.server->lost[0], status::peer_lost);
    EXPECT_TRUE(c.server->arrived.empty());
}

TEST(tcp_link, close_still_sends_the_answer) {
    constexpr std::size_t large = 8 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 1, .request_bytes = 64, .response_bytes = large});
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 1, {}), status::ok);
    world.run({&c}, [&] { return !c.server->arrived.empty(); });
    const bytes payload = random_bytes(large, 9);
    ASSERT_EQ(send_message(*c.server->path, message_kind::response, 0, 1, payload), status::ok);
    world.run({&c}, [&] { return c.server->path->close(); });
    world.run({&c}, [&] { return !c.client->arrived.empty(); });
    EXPECT_TRUE(same(c.client->arrived[0].payload, payload));
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

TEST(tcp_link, pinned_payloads_arrive_and_are_released) {
    constexpr std::size_t large = 3 << 20;
    tcp_world world;
    auto c = world.connect({.slots = 2, .request_bytes = large, .response_bytes = large, .zerocopy = true});
    for (std::uint32_t i = 1; i <= 20; ++i) {
        bytes lent = random_bytes(large - i, i);
        const bytes sent = lent;
        const std::uint32_t slot = i % 2;
        ASSERT_EQ(send_message(*c.client->path, message_kind::request, slot, i, lent, some_region()), status::ok);
        const bool retracted = i % 3 == 0;
        if (retracted && c.client->path->retract(slot)) std::fill(lent.begin(), lent.end(), std::byte{0xee});
        world.run({&c}, [&] { return !c.server->arrived.empty(); });
        ASSERT_TRUE(same(c.server->arrived[0].payload, sent)) << i;
        c.server->arrived.clear();
        c.server->path->consumed(slot);
        ASSERT_EQ(send_message(*c.server->path, message_kind::response, slot, i, sent, some_region()), status::ok);
        world.run({&c}, [&] { return !c.client->arrived.empty() && !c.server->released.empty(); });
        ASSERT_TRUE(same(c.client->arrived[0].payload, sent)) << i;
        ASSERT_EQ(c.server->released, std::vector<std::uint32_t>{slot});
        c.client->arrived.clear();
        c.server->released.clear();
    }
    ASSERT_EQ(send_message(*c.client->path, message_kind::request, 0, 99, random_bytes(large, 1)), status::ok);
    const core::nanoseconds start = core::now();
    while (!c.client->path->close()) ASSERT_LT(core::now() - start, 5s);
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
