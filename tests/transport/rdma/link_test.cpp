// SPDX-License-Identifier: Apache-2.0
// Two links and what lies between them, without the core.
#include "core/internals.hpp"
#include "rdma_pair.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <poll.h>

namespace accel::rdma::testing {
namespace {

class rdma_link : public rdma_test {};

/// A region of the same context that the links are of.
struct registered {
    std::vector<std::byte> bytes;
    core::region_state state;
    registered(core::context_state& context, std::vector<std::byte> content)
        : bytes(std::move(content)), state(context, bytes.data(), bytes.size(), nullptr, false) {}
};

TEST_F(rdma_link, carries_every_size_both_ways) {
    listen();
    pair p = connect();
    for (const std::size_t length : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 1000U, 4095U, 4096U}) {
        for (std::uint32_t slot = 0; slot < 4; ++slot) {
            const auto bytes = pattern(length, slot);
            ASSERT_EQ(send(*p.client, message_kind::request, slot, bytes), status::ok);
            const auto request = next(*server_events);
            EXPECT_EQ(request.header.slot, slot);
            expect_payload(request, bytes);
            const auto answer = pattern(length, slot + 100);
            ASSERT_EQ(send(*p.server, message_kind::response, slot, answer), status::ok);
            expect_payload(next(*p.client_events), answer);
        }
    }
}

TEST_F(rdma_link, lent_payloads_are_sent_in_place) {
    listen();
    pair p = connect();
    registered lent(*context, pattern(4096, 5));
    header_in(*p.client, message_kind::request, 2, lent.bytes.size());
    std::fill_n(p.client->send().payload(2), 4096, std::byte{0xee});
    ASSERT_EQ(p.client->deliver({2, lent.bytes, &lent.state, {}}), status::ok);
    expect_payload(next(*server_events), lent.bytes);
    EXPECT_EQ(p.client->send().payload(2)[0], std::byte{0xee}) << "the slot's own memory was used";
}

TEST_F(rdma_link, a_server_reports_when_lent_memory_is_released) {
    listen();
    pair p = connect();
    registered lent(*context, pattern(1000, 6));
    ASSERT_EQ(send(*p.client, message_kind::request, 1, {}), status::ok);
    (void)next(*server_events);
    header_in(*p.server, message_kind::response, 1, lent.bytes.size());
    ASSERT_EQ(p.server->deliver({1, lent.bytes, &lent.state, {}}), status::ok);
    const auto told = next(*server_events);
    EXPECT_EQ(told.kind, event_kind::buffer_released);
    EXPECT_EQ(told.header.slot, 1U);
    expect_payload(next(*p.client_events), lent.bytes);
}

/// The completion of a send may be taken together with the answer to it, and told later.
TEST_F(rdma_link, a_reused_slot_is_not_released_for_its_last_message) {
    listen();
    pair p = connect();
    std::vector<std::byte> bytes(1000);
    const region lent = core::internals::make_region(
        std::make_unique<core::region_state>(*context, bytes.data(), bytes.size(), nullptr, false));
    ASSERT_EQ(send_lent(*p.client, message_kind::request, 0, lent.part(0, 100).value()), status::ok);
    EXPECT_FALSE(p.client->retract(0)) << "its completion has not been taken";
    (void)next(*server_events);
    ASSERT_EQ(send(*p.server, message_kind::response, 0, {}), status::ok);
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually(patience(5s), [&] {
        (void)server_events->poll(some);
        return p.server->flushed();
    }));
    EXPECT_TRUE(eventually(patience(5s), [&] {
        const std::size_t count = p.client_events->poll(some);
        return count > 0 && some[count - 1].kind == event_kind::arrived;
    }));
    ASSERT_EQ(send(*p.client, message_kind::request, 0, {}, lent.whole()), status::ok);
    EXPECT_FALSE(p.client->retract(0)) << "the server may still write there";
    EXPECT_TRUE(silent(*p.client_events)) << "only its late answer says that it does not";
}

TEST_F(rdma_link, a_queue_that_is_full_says_again_and_loses_nothing) {
    listen();
    pair p = connect({1, 64, 64});
    unsigned sent = 0;
    // One slot, sent from without waiting: more than any send queue holds.
    while (sent < 10'000 && send(*p.client, message_kind::request, 0, {}) == status::ok) ++sent;
    ASSERT_LT(sent, 10'000U) << "never full";
    ASSERT_GE(sent, 16U);
    unsigned arrived = 0;
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually(
        patience(5s),
        [&] {
            arrived += static_cast<unsigned>(server_events->poll(some));
            (void)p.client_events->poll(some);  // takes what has completed
            return arrived == sent;
        },
        10us));
    EXPECT_EQ(send(*p.client, message_kind::request, 0, {}), status::ok) << "there is room again";
}

TEST_F(rdma_link, a_sleeping_poller_loses_no_wake_up) {
    listen();
    pair p = connect();
    for (unsigned round = 0; round < 2'000; ++round) {
        const bool before = round % 3 == 0;  // it is asked to sleep
        status sent = before ? send(*p.client, message_kind::request, 0, pattern(8, round)) : status::ok;
        const bool asleep = server_events->arm();
        if (!before) sent = send(*p.client, message_kind::request, 0, pattern(8, round));
        ASSERT_EQ(sent, status::ok);
        if (asleep) {
            const auto until = core::deadline_after(patience(5s));
            pollfd ready{server_events->event_fd(), POLLIN, 0};
            if (round % 2 == 0) {
                ASSERT_EQ(::poll(&ready, 1, 5'000), 1) << "asleep for ever, round " << round;
            } else {
                (void)server_events->sleep(-1, until);
                ASSERT_LT(core::now(), until) << "asleep for ever, round " << round;
            }
        }
        server_events->disarm();
        expect_payload(next(*server_events), pattern(8, round));
        std::array<link_event, 16> some;
        (void)p.client_events->poll(some);
    }
}

TEST_F(rdma_link, many_links_of_one_thread_need_more_completion_queues_than_one) {
    listen();
    const auto client_events = open_poller(core::link_role::client);
    constexpr std::uint32_t links = 24;
    std::vector<std::unique_ptr<core::link>> clients;
    std::vector<std::unique_ptr<core::link>> servers;
    for (std::uint32_t i = 0; i < links; ++i) {
        clients.push_back(client_events->open_link(config_of(core::link_role::client, small)).value());
        servers.push_back(accept(clients[i]->describe(), small).value());
        ASSERT_TRUE(
            clients[i]->attach({1, {}, "127.0.0.1", servers[i]->describe()}, core::deadline_after(patience(5s))).ok());
        clients[i]->activate();
    }
    for (std::uint32_t round = 0; round < 10; ++round) {
        for (std::uint32_t i = 0; i < links; ++i) {
            ASSERT_EQ(send(*clients[i], message_kind::request, 1, pattern(200, i)), status::ok);
            expect_payload(next(*server_events), pattern(200, i));
            const bool asleep = client_events->arm();
            ASSERT_EQ(send(*servers[i], message_kind::response, 1, pattern(300, i + round)), status::ok);
            if (asleep) {
                const auto until = core::deadline_after(patience(5s));
                (void)client_events->sleep(-1, until);
                ASSERT_LT(core::now(), until) << "asleep for ever, link " << i;
            }
            client_events->disarm();
            expect_payload(next(*client_events), pattern(300, i + round));
        }
    }
    // From all queues at once.
    for (std::uint32_t i = 0; i < links; ++i)
        ASSERT_EQ(send(*servers[i], message_kind::response, 2, pattern(64, i)), status::ok);
    for (std::uint32_t i = 0; i < links; ++i) EXPECT_EQ(next(*client_events).payload.size(), 64U);
    clients.clear();
    servers.clear();
}

TEST_F(rdma_link, a_slot_may_hold_a_gibibyte) {
    listen();
    constexpr std::size_t gibibyte = std::size_t{1} << 30;
    pair p = connect({1, gibibyte, 64});
    header_in(*p.client, message_kind::request, 0, gibibyte);
    std::byte* const payload = p.client->send().payload(0);
    constexpr std::size_t step = (1U << 20) - 8;
    for (std::size_t at = 0; at + 8 <= gibibyte; at += step) std::memcpy(payload + at, &at, 8);
    payload[gibibyte - 1] = std::byte{0x5a};
    ASSERT_EQ(p.client->deliver({0, {payload, gibibyte}, nullptr, {}}), status::ok);
    const auto event = next(*server_events, patience(30s));
    ASSERT_EQ(event.payload.size(), gibibyte);
    for (std::size_t at = 0; at + 8 <= gibibyte; at += step) {
        std::size_t found = 0;
        std::memcpy(&found, event.payload.data() + at, 8);
        ASSERT_EQ(found, at);
    }
    EXPECT_EQ(event.payload[gibibyte - 1], std::byte{0x5a});
}

/// Some drivers drop what a queue pair had received when it is destroyed: nobody hears of those receives.
TEST_F(rdma_link, receives_of_ended_sessions_come_back) {
    constexpr core::link_geometry wide{512, 64, 64};
    constexpr unsigned sessions = 20;  // more requests in all than a worker has receives
    listen();
    for (unsigned i = 0; i < sessions; ++i) {
        pair p = connect(wide);
        for (std::uint32_t slot = 0; slot < wide.slots; ++slot)
            ASSERT_EQ(send(*p.client, message_kind::request, slot, {}), status::ok);
        std::array<link_event, 16> some;
        ASSERT_TRUE(eventually(patience(5s),
                               [&] {
                                   (void)p.client_events->poll(some);
                                   return p.client->flushed();
                               }))
            << "session " << i;
        EXPECT_TRUE(eventually(patience(5s), [&] { return p.server->close(); }));
        for (std::uint32_t look = 0; look < 2 * wide.slots; ++look)
            ASSERT_EQ(server_events->poll(some), 0U) << "of a session that has ended";
    }
    pair last = connect();
    ASSERT_EQ(send(*last.client, message_kind::request, 0, pattern(100, 1)), status::ok);
    expect_payload(next(*server_events), pattern(100, 1));
}

TEST_F(rdma_link, closing_is_final_and_can_be_repeated) {
    listen();
    pair p = connect();
    EXPECT_TRUE(p.client->close());
    EXPECT_TRUE(p.client->close());
    EXPECT_EQ(send(*p.client, message_kind::request, 0, {}), status::peer_lost);
    EXPECT_TRUE(silent(*p.client_events));
    ASSERT_EQ(send(*p.server, message_kind::response, 0, {}), status::ok);
    const auto lost = next(*server_events);
    EXPECT_EQ(lost.kind, event_kind::lost) << "a write to a queue pair that is gone";
    EXPECT_EQ(lost.reason, status::peer_lost);
}

TEST_F(rdma_link, a_server_closes_at_once_after_its_client_left) {
    listen();
    pair p = connect();
    EXPECT_TRUE(p.client->close());
    ASSERT_EQ(send(*p.server, message_kind::response, 0, {}), status::ok);
    EXPECT_FALSE(p.server->close()) << "its answer is on its way";
    p.server->peer_left();
    EXPECT_TRUE(p.server->close());
}

TEST_F(rdma_link, a_server_flushes_its_answers_before_it_closes) {
    listen();
    pair p = connect({4, 64, 2U << 20});
    for (std::uint32_t slot = 0; slot < 4; ++slot)
        ASSERT_EQ(send(*p.server, message_kind::response, slot, pattern(2U << 20, slot)), status::ok);
    std::array<link_event, 16> some;
    EXPECT_TRUE(eventually(
        patience(5s),
        [&] {
            (void)server_events->poll(some);
            return p.server->flushed();
        },
        10us));
    EXPECT_TRUE(p.server->close());
    for (std::uint32_t slot = 0; slot < 4; ++slot) expect_payload(next(*p.client_events), pattern(2U << 20, slot));
}

}  // namespace
}  // namespace accel::rdma::testing
