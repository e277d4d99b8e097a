// SPDX-License-Identifier: Apache-2.0
// A client that does with its queue pair what no correct client does. Its session ends; nothing else does.
#include "bare_client.hpp"
#include "rdma_pair.hpp"
#include "verbs/domain.hpp"
#include "verbs/queues.hpp"

#include <accel_transport/detail/wire/response_target.hpp>

#include <algorithm>
#include <cstring>
#include <functional>

#include <arpa/inet.h>

namespace accel::rdma::testing {
namespace {

using verbs::endpoint;

class rdma_hostile : public rdma_test {
  protected:
    /// A well-behaved session beside the attacked one has to go on as if nothing had been.
    void expect_only_its_own_session_ends(const std::function<void(bare_client&)>& attack, bool reads = false) {
        listen();
        pair good = connect();
        bare_client bad(small);
        int owner = 0;
        auto attacked = accept(bad.describe(), small, &owner).value();
        bad.connect(attacked->describe());
        attack(bad);
        if (!reads || bad.is_told_of_reads()) {
            const auto lost = next(*server_events);
            EXPECT_EQ(lost.kind, event_kind::lost);
            EXPECT_EQ(lost.owner, &owner);
            EXPECT_EQ(lost.reason, status::protocol_error);
        }
        EXPECT_TRUE(eventually(patience(1s), [&] { return attacked->close(); }));
        expect_unharmed(good);
    }
    void expect_unharmed(pair& good) {
        for (unsigned i = 0; i < 100; ++i) {
            std::array<link_event, 16> none;
            EXPECT_EQ(good.client_events->poll(none), 0U);
            ASSERT_EQ(send(*good.client, message_kind::request, i % 4, pattern(100, i)), status::ok);
            expect_payload(next(*server_events), pattern(100, i));
        }
    }
};

TEST_F(rdma_hostile, requests_of_no_correct_client_end_their_session_alone) {
    using request = bare_client::request;
    const auto place = [](request& what, wire::response_target at) {
        what.placed.value = at;
        what.extensions = sizeof what.placed;
        what.header.extension_bytes = sizeof what.placed;
    };
    struct row {
        const char* what;
        std::function<void(request&)> spoil;
        bool good = false;
    };
    const row all[] = {
        {"a correct one", [](request&) {}, true},
        {"immediate data beyond the slots", [](request& what) { what.immediate = small.slots; }},
        {"immediate data of all ones", [](request& what) { what.immediate = 0xffff'ffff; }},
        {"immediate data of another slot", [](request& what) { what.immediate = 2; }},
        {"a payload as long as a slot", [](request& what) { what.header.length = small.request_bytes; }, true},
        {"a payload longer than a slot", [](request& what) { what.header.length = small.request_bytes + 1; }},
        {"a payload longer than memory", [](request& what) { what.header.length = ~std::uint64_t{0}; }},
        {"extensions longer than their room", [](request& what) { what.header.extension_bytes = 0xfff8; }},
        {"malformed extensions",
         [&](request& what) {
             place(what, {0x1000, 64, 1, 0});
             what.placed.head.length = 0xffff;
         }},
        {"a response target as long as its room",
         [&](request& what) {
             place(what, {0x1000, 64, 1, 0});
         },
         true},
        {"a response target shorter than its room",
         [&](request& what) {
             place(what, {0x1000, 63, 1, 0});
         }},
        {"a send without a write",
         [](request& what) {
             what.operation = mlx5::opcode::send_immediate;
             what.length = 0;
         }},
    };
    listen();
    pair good = connect();
    for (const row& each : all) {
        SCOPED_TRACE(each.what);
        bare_client bad(small);
        int owner = 0;
        auto attacked = accept(bad.describe(), small, &owner).value();
        bad.connect(attacked->describe());
        request what = bad.correct(1);
        each.spoil(what);
        bad.post(what);
        const auto event = next(*server_events);
        EXPECT_EQ(event.owner, &owner);
        EXPECT_EQ(event.kind, each.good ? event_kind::arrived : event_kind::lost);
        EXPECT_EQ(event.reason, each.good ? status::ok : status::protocol_error);
        if (each.good) {
            EXPECT_EQ(event.header.slot, 1U);
        }
        EXPECT_TRUE(eventually(patience(1s), [&] { return attacked->close(); }));
        expect_unharmed(good);
    }
}

TEST_F(rdma_hostile, a_write_past_the_last_slot_touches_nothing) {
    expect_only_its_own_session_ends([](bare_client& bad) {
        auto what = bad.correct(0);
        what.address = bad.server().slots_address + 4 * bad.server().slots_stride;
        bad.post(what);
        EXPECT_EQ(bad.outcome(), mlx5::syndrome::remote_access);
    });
}

/// No registration is asked for no bytes: the queue pair alone refuses that one.
TEST_F(rdma_hostile, rdma_reads_end_the_session) {
    for (const bool of_bytes : {true, false}) {
        const auto read = [&](bare_client& bad) {
            auto what = bad.correct(0);
            what.operation = mlx5::opcode::read;
            if (!of_bytes) what.length = 0;
            bad.post(what);
            EXPECT_NE(bad.outcome(), mlx5::syndrome::none) << of_bytes;
        };
        expect_only_its_own_session_ends(read, true);
    }
}

/// Protection domains are per session.
TEST_F(rdma_hostile, keys_of_another_session_and_guessed_ones_open_nothing) {
    listen();
    pair good = connect();
    endpoint other;
    const auto described = good.server->describe();
    std::memcpy(&other, described.data(), std::min(described.size(), sizeof other));
    for (std::uint32_t guess = 0; guess < 64; ++guess) {
        bare_client bad(small);
        auto attacked = accept(bad.describe(), small).value();
        bad.connect(attacked->describe());
        auto what = bad.correct(0);
        what.key = other.slots_key + guess - 32;
        what.address = other.slots_address + core::extension_room;
        bad.post(what);
        if (guess == 32) {
            EXPECT_EQ(bad.outcome(), mlx5::syndrome::remote_access) << "the right key of the other session";
        } else {
            EXPECT_NE(bad.outcome(), mlx5::syndrome::none) << guess;
        }
    }
    ASSERT_EQ(send(*good.client, message_kind::request, 0, pattern(10, 1)), status::ok);
    link_event event = next(*server_events);
    while (event.kind == event_kind::lost) event = next(*server_events);  // of the attackers
    expect_payload(event, pattern(10, 1));
}

TEST_F(rdma_hostile, an_answer_to_foreign_memory_ends_only_its_session) {
    listen();
    pair good = connect();
    bare_client bad(small);
    auto attacked = accept(bad.describe(), small).value();
    bad.connect(attacked->describe());
    auto what = bad.correct(1);
    what.placed.value = {0xdead'0000, 4096, 12345, 0};
    what.extensions = sizeof what.placed;
    what.header.extension_bytes = sizeof what.placed;
    bad.post(what);
    ASSERT_EQ(next(*server_events).kind, event_kind::arrived);
    ASSERT_EQ(send(*attacked, message_kind::response, 1, pattern(64, 1)), status::ok);
    const auto lost = next(*server_events);
    EXPECT_EQ(lost.kind, event_kind::lost);
    EXPECT_EQ(lost.reason, status::protocol_error);
    ASSERT_EQ(send(*good.client, message_kind::request, 0, pattern(10, 1)), status::ok);
    expect_payload(next(*server_events), pattern(10, 1));
}

TEST_F(rdma_hostile, link_descriptions_that_do_not_fit_are_refused) {
    listen();
    auto events = open_poller(core::link_role::client);
    auto client = events->open_link(config_of(core::link_role::client, small)).value();
    const auto good = client->describe();
    const auto refused = [&](const std::function<void(endpoint&)>& spoil) {
        endpoint e;
        std::memcpy(&e, good.data(), good.size());
        spoil(e);
        core::link_description bytes(e.size_bytes());
        std::memcpy(bytes.data(), &e, bytes.size());
        return accept(bytes, small).code();
    };
    EXPECT_EQ(refused([](endpoint& e) { e.slots = 5; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) { e.slots_stride = 64; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) { e.mtu = 9; }), status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) {
                  e.flags = verbs::payloads_apart;
                  e.payloads_stride = 64;
              }),
              status::protocol_error);
    EXPECT_EQ(refused([](endpoint& e) {
                  e.layer = e.layer == verbs::link_layer::ethernet ? verbs::link_layer::infiniband
                                                                   : verbs::link_layer::ethernet;
              }),
              status::unsupported);
    EXPECT_EQ(accept({}, small).code(), status::protocol_error);
    EXPECT_EQ(refused([](endpoint&) {}), status::ok);
}

}  // namespace
}  // namespace accel::rdma::testing
