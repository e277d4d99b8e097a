// SPDX-License-Identifier: Apache-2.0
#include "unit/zmq_pair.hpp"

#include <thread>

namespace accel::zmq::testing {
namespace {

constexpr std::size_t mebibyte = 1 << 20;

/// Registered memory of the test.
struct memory {
    explicit memory(std::size_t size) {
        auto opened = accel::context::open();
        EXPECT_TRUE(opened.ok());
        holder = std::make_unique<accel::context>(std::move(*opened));
        auto allocated = holder->allocate(size);
        EXPECT_TRUE(allocated.ok());
        bytes = std::move(*allocated);
    }
    [[nodiscard]] slice filled(std::span<const std::byte> content) {
        std::memcpy(bytes.data(), content.data(), content.size());
        auto part = bytes.part(0, content.size());
        EXPECT_TRUE(part.ok());
        return *part;
    }
    std::unique_ptr<accel::context> holder;
    region bytes;
};

class zmq_link_test : public zmq_test {
  protected:
    void round_trips(pair& both, std::uint32_t slots) {
        std::uint32_t generation = 0;
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{960}, std::size_t{1024}, std::size_t{4096},
              std::size_t{8100}, std::size_t{8192}, std::size_t{65'536}, mebibyte - 1, mebibyte}) {
            ++generation;
            const auto slot = static_cast<std::uint32_t>(generation % slots);
            const auto asked = random_bytes(size, generation);
            ASSERT_EQ(send(*both.client, message_kind::request, slot, asked, generation), status::ok);
            const link_event request = next(*server_events);
            expect_payload(request, asked);
            EXPECT_EQ(request.header.slot, slot);
            EXPECT_EQ(request.header.generation, generation);
            both.server->consumed(slot);
            const auto answer = random_bytes(size, generation + 1'000);
            ASSERT_EQ(send(*both.server, message_kind::response, slot, answer, generation), status::ok);
            expect_payload(next(*both.client_events), answer);
            both.client->consumed(slot);
        }
    }
};

TEST_F(zmq_link_test, messages_of_all_sizes_go_both_ways) {
    listen();
    auto both = open({4, mebibyte, mebibyte});
    round_trips(both, 4);
}

TEST_F(zmq_link_test, messages_go_both_ways_encrypted) {
    listen(false);
    auto both = open({4, mebibyte, mebibyte});
    round_trips(both, 4);
}

TEST_F(zmq_link_test, a_key_that_is_not_a_sessions_does_not_attach) {
    listen(false);
    auto granted = open_client({1, 64, 64});
    const auto server = open_server_link({1, 64, 64}, {}, nullptr, granted.client->describe());
    server->activate();
    const auto stranger = open_client({1, 64, 64});
    const auto refused = attach(stranger, server->describe());
    EXPECT_EQ(refused.code(), status::unauthorized) << refused.error().message;
    EXPECT_TRUE(attach(granted, server->describe()).ok()) << "its own client is not kept out";
}

TEST_F(zmq_link_test, ends_with_and_without_keys_refuse_each_other) {
    listen(false);
    core::link_config config;
    config.role = core::link_role::server;
    config.geometry = {1, 64, 64};
    config.receive = make_slots(1, 64);
    config.send = make_slots(1, 64);
    auto server = server_events->open_link(config);
    EXPECT_EQ((*server)->attach({0, {}, {}, encode(client_description{})}, core::never).code(), status::unauthorized);
    plain = true;
    const auto client = open_client({1, 64, 64});
    EXPECT_EQ(attach(client, (*server)->describe()).code(), status::unauthorized);
}

TEST_F(zmq_link_test, a_closed_port_is_reported) {
    listen();
    auto server = open_server_link({1, 64, 64}, {}, nullptr);
    const auto told = server->describe();
    server.reset();
    server_events.reset();
    const auto client = open_client({1, 64, 64});
    // ZeroMQ closes the port some time after its socket.
    std::string why;
    EXPECT_TRUE(eventually([&] {
        const auto refused = attach(client, told, 2s);
        why = refused.ok() ? "" : refused.error().message;
        return why.find("firewall") != std::string::npos;
    })) << why;
}

TEST_F(zmq_link_test, the_backend_may_be_destroyed_before_its_pollers_and_links) {
    listen();
    auto both = open({1, 64, 64});
    backend.reset();
    ASSERT_EQ(send(*both.client, message_kind::request, 0, {}), status::ok);
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);
}

TEST_F(zmq_link_test, a_slot_that_zeromq_still_holds_waits) {
    listen();
    constexpr std::size_t large = 32 << 20;
    auto both = open({1, 64, large});
    ASSERT_EQ(send(*both.client, message_kind::request, 0, {}), status::ok);
    expect_payload(next(*server_events), {});
    both.server->consumed(0);
    const auto answer = random_bytes(large, 1);
    ASSERT_EQ(send(*both.server, message_kind::response, 0, answer), status::ok);
    // Its bytes are still on their way, so the slot may not be written to; the header of the next answer is.
    const status second = both.server->deliver({0, {both.server->send().payload(0), 0}, nullptr, {}});
    if (second == status::ok) GTEST_SKIP() << "ZeroMQ was faster";
    EXPECT_EQ(second, status::again);
    expect_payload(next(*both.client_events), answer);
    both.client->consumed(0);
    EXPECT_TRUE(eventually([&] { return both.server->flushed(); }));
    EXPECT_EQ(send(*both.server, message_kind::response, 0, {}, 2), status::ok);
}

TEST_F(zmq_link_test, thousands_of_messages_at_full_depth_arrive_unchanged) {
    listen();
    constexpr std::uint32_t slots = 16;
    auto both = open({slots, 4'096, 4'096});
    std::minstd_rand random{3};
    std::array<link_event, 16> events;
    std::vector<std::vector<std::byte>> asked(slots);
    std::vector<std::uint32_t> generation(slots, 0);
    std::vector<bool> busy(slots, false);
    std::size_t answered = 0;
    auto deadline = core::deadline_after(60s);
    while (answered < 5'000 && core::now() < deadline) {
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            if (busy[slot]) continue;
            asked[slot] = random_bytes(random() % 4'097, static_cast<std::uint32_t>(random()));
            ASSERT_EQ(send(*both.client, message_kind::request, slot, asked[slot], ++generation[slot]), status::ok);
            busy[slot] = true;
        }
        std::size_t count = server_events->poll(events);
        for (std::size_t i = 0; i < count; ++i) {
            const slot_header& header = events[i].header;
            expect_payload(events[i], asked[header.slot]);
            // The echo is made before the request's bytes are given back.
            const std::vector<std::byte> echo{events[i].payload.begin(), events[i].payload.end()};
            both.server->consumed(header.slot);
            ASSERT_EQ(send(*both.server, message_kind::response, header.slot, echo, header.generation), status::ok);
        }
        count = both.client_events->poll(events);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t slot = events[i].header.slot;
            EXPECT_EQ(events[i].header.generation, generation[slot]);
            expect_payload(events[i], asked[slot]);
            both.client->consumed(slot);
            busy[slot] = false;
            ++answered;
            deadline = core::deadline_after(60s);
        }
    }
    EXPECT_GE(answered, 5'000U);
}

TEST_F(zmq_link_test, lent_payloads_are_sent_in_place) {
    listen();
    auto both = open({2, mebibyte, mebibyte});
    memory asked{mebibyte};
    memory answer{mebibyte};
    const auto content = random_bytes(mebibyte, 1);
    for (std::uint32_t generation = 1; generation <= 20; ++generation) {
        ASSERT_EQ(send_lent(*both.client, message_kind::request, 1, asked.filled(content), generation), status::ok);
        expect_payload(next(*server_events), content);
        both.server->consumed(1);
        const auto reply = random_bytes(100 * generation, generation);
        ASSERT_EQ(send_lent(*both.server, message_kind::response, 1, answer.filled(reply), generation), status::ok);
        expect_payload(next(*both.client_events), reply);
        both.client->consumed(1);
        const link_event told = next(*server_events);
        ASSERT_EQ(told.kind, event_kind::buffer_released) << "a server hears of every lent payload";
        EXPECT_EQ(told.header.slot, 1U);
    }
    EXPECT_TRUE(silent(*both.client_events)) << "a client that has not asked hears nothing";
    EXPECT_TRUE(both.client->retract(1));
}

TEST_F(zmq_link_test, an_empty_lent_payload_arrives) {
    listen();
    auto both = open({1, 64, 64});
    memory nothing{64};
    ASSERT_EQ(send_lent(*both.client, message_kind::request, 0, *nothing.bytes.part(0, 0)), status::ok);
    expect_payload(next(*server_events), {});
}

TEST_F(zmq_link_test, a_response_goes_to_its_response_target) {
    listen();
    auto both = open({1, 64, mebibyte});
    memory target{mebibyte};
    for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{70'000}}) {
        const auto generation = static_cast<std::uint32_t>(size);
        slot_header header;
        header.generation = generation;
        std::memcpy(both.client->send().header(0), &header, sizeof header);
        ASSERT_EQ(both.client->deliver({0, {both.client->send().payload(0), 0}, nullptr, target.bytes.whole()}),
                  status::ok);
        expect_payload(next(*server_events), {});
        both.server->consumed(0);
        const auto answer = random_bytes(size, generation);
        ASSERT_EQ(send(*both.server, message_kind::response, 0, answer, generation), status::ok);
        const link_event response = next(*both.client_events);
        expect_payload(response, answer);
        EXPECT_EQ(response.payload.data(), target.bytes.data());
        both.client->consumed(0);
    }
}

TEST_F(zmq_link_test, a_retracted_target_is_not_written) {
    listen();
    auto both = open({1, 64, 64});
    memory target{64};
    const auto before = random_bytes(64, 9);
    std::memcpy(target.bytes.data(), before.data(), 64);
    slot_header header;
    header.generation = 1;
    std::memcpy(both.client->send().header(0), &header, sizeof header);
    ASSERT_EQ(both.client->deliver({0, {both.client->send().payload(0), 0}, nullptr, target.bytes.whole()}),
              status::ok);
    EXPECT_TRUE(both.client->retract(0));
    expect_payload(next(*server_events), {});
    both.server->consumed(0);
    const auto answer = random_bytes(64, 1);
    ASSERT_EQ(send(*both.server, message_kind::response, 0, answer, 1), status::ok);
    const link_event response = next(*both.client_events);
    expect_payload(response, answer);
    EXPECT_NE(response.payload.data(), target.bytes.data());
    EXPECT_EQ(std::memcmp(target.bytes.data(), before.data(), 64), 0);
}

TEST_F(zmq_link_test, an_answer_of_another_generation_or_a_failure_is_not_directed) {
    listen();
    auto both = open({1, 64, 64});
    memory target{64};
    slot_header header;
    header.generation = 7;
    std::memcpy(both.client->send().header(0), &header, sizeof header);
    ASSERT_EQ(both.client->deliver({0, {both.client->send().payload(0), 0}, nullptr, target.bytes.whole()}),
              status::ok);
    expect_payload(next(*server_events), {});
    both.server->consumed(0);
    ASSERT_EQ(send(*both.server, message_kind::response, 0, random_bytes(8, 1), 6), status::ok);
    EXPECT_NE(next(*both.client_events).payload.data(), target.bytes.data());
    both.client->consumed(0);

    slot_header failure;
    failure.kind = message_kind::response;
    failure.generation = 7;
    failure.code = status::application_error;
    failure.length = 4;
    std::memcpy(both.server->send().header(0), &failure, sizeof failure);
    ASSERT_EQ(both.server->deliver({0, {both.server->send().payload(0), 4}, nullptr, {}}), status::ok);
    EXPECT_NE(next(*both.client_events).payload.data(), target.bytes.data());
}

TEST_F(zmq_link_test, many_links_share_one_poller) {
    listen();
    constexpr std::uint8_t links = 40;
    std::vector<pair> all;
    std::vector<int> owners(links);
    for (std::uint8_t i = 0; i < links; ++i) all.push_back(open({2, 256, 256}, i, &owners[i]));
    for (std::uint8_t i = 0; i < links; ++i) {
        ASSERT_EQ(send(*all[i].client, message_kind::request, 1, random_bytes(100, i)), status::ok);
    }
    std::vector<bool> seen(links, false);
    for (std::uint8_t i = 0; i < links; ++i) {
        const link_event event = next(*server_events);
        const auto which = static_cast<std::size_t>(static_cast<int*>(event.owner) - owners.data());
        ASSERT_LT(which, owners.size());
        EXPECT_FALSE(seen[which]);
        seen[which] = true;
        expect_payload(event, random_bytes(100, static_cast<std::uint32_t>(which)));
    }
}

TEST_F(zmq_link_test, an_arriving_message_wakes_a_sleeper) {
    listen();
    auto both = open({1, 64, 64});
    std::array<link_event, 16> events;
    ASSERT_TRUE(eventually([&] { return server_events->poll(events) == 0 && server_events->arm(); }));
    pollfd server_sleeps{server_events->event_fd(), POLLIN, 0};
    std::thread client{[&] {
        std::this_thread::sleep_for(50ms);
        EXPECT_EQ(send(*both.client, message_kind::request, 0, {}), status::ok);
    }};
    ASSERT_EQ(::poll(&server_sleeps, 1, 10'000), 1);
    client.join();
    server_events->disarm();
    EXPECT_EQ(next(*server_events).kind, event_kind::arrived);

    both.server->consumed(0);
    ASSERT_TRUE(eventually([&] { return both.client_events->poll(events) == 0 && both.client_events->arm(); }));
    ASSERT_EQ(send(*both.server, message_kind::response, 0, {}), status::ok);
    pollfd client_sleeps{both.client_events->event_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&client_sleeps, 1, 10'000), 1);
    both.client_events->disarm();
    EXPECT_EQ(next(*both.client_events).kind, event_kind::arrived);
}

TEST_F(zmq_link_test, memory_that_zeromq_releases_wakes_a_sleeper) {
    listen();
    auto both = open({1, 64, 64});
    memory answer{64};
    std::array<link_event, 16> events;
    ASSERT_EQ(send(*both.client, message_kind::request, 0, {}), status::ok);
    expect_payload(next(*server_events), {});
    both.server->consumed(0);
    ASSERT_EQ(send_lent(*both.server, message_kind::response, 0, answer.bytes.whole()), status::ok);
    bool told = false;
    const auto deadline = core::deadline_after(patience);
    while (!told && core::now() < deadline) {
        const std::size_t count = server_events->poll(events);
        for (std::size_t i = 0; i < count; ++i) told = told || events[i].kind == event_kind::buffer_released;
        if (told || count > 0 || !server_events->arm()) continue;
        pollfd sleeps{server_events->event_fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&sleeps, 1, 10'000), 1) << "armed, and never woken";
        server_events->disarm();
    }
    EXPECT_TRUE(told);
}

TEST_F(zmq_link_test, opening_and_closing_links_leaves_no_descriptor) {
    listen();
    { auto warm = open({2, 64, 64}, 250); }
    const std::size_t before = open_descriptors();
    for (int i = 0; i < 200; ++i) {
        auto both = open({2, 64, 64}, static_cast<std::uint8_t>(i));
        ASSERT_EQ(send(*both.client, message_kind::request, 0, {}), status::ok);
        ASSERT_EQ(next(*server_events).kind, event_kind::arrived);
        EXPECT_TRUE(eventually([&] { return both.client->close(); }));
        EXPECT_TRUE(eventually([&] { return both.server->close(); }));
    }
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; })) << open_descriptors() << " > " << before;
}

}  // namespace
}  // namespace accel::zmq::testing
