// SPDX-License-Identifier: Apache-2.0
// A worker whose client gives room for parts as no channel of ours would: too late, twice, for others, or wrongly.
#include "core/server/worker.hpp"
#include "unit/scripted_link.hpp"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

constexpr link_geometry shape{5, 64, 64};

struct sending_parts : ::testing::Test, session_observer {
    sending_parts() {
        server_options options;
        options.poll = poll_mode::busy;
        serving = new worker(nullptr, options, [this](exchange one) { held.push_back(std::move(one)); });
        auto made = std::make_unique<session>(*serving, 1, "test", client_identity{"", "peer"}, shape);
        auto path = std::make_unique<scripted_link>(slot_memory::create(shape.slots, shape.request_bytes).value(),
                                                    slot_memory::create(shape.slots, shape.request_bytes).value());
        client = path.get();
        client_session = made.get();
        serving->add_source(std::make_unique<scripted_poller>(*path));
        serving->observe(this);
        made->set_link(std::move(path));
        serving->install(std::move(made));
        (void)serving->progress();
    }
    ~sending_parts() override {
        held.clear();
        serving->stop();
        serving->release_ref();
    }
    void session_lost(const session&, status why) noexcept override { lost = why; }
    void session_freed(const session&) noexcept override { client = nullptr; }

    static slot_header request(std::uint32_t slot, std::uint32_t generation) {
        slot_header header;
        header.flags = header_flag::parts;
        header.slot = slot;
        header.generation = generation;
        header.response_room = 64;
        header.deadline_ns = never.count();
        return header;
    }
    static slot_header plain(std::uint32_t slot, std::uint32_t generation) {
        slot_header header = request(slot, generation);
        header.flags = 0;
        return header;
    }
    static slot_header room(std::uint32_t slot, std::uint32_t generation, std::uint32_t call, std::uint32_t of) {
        slot_header header = request(slot, generation);
        header.flags = header_flag::more;
        header.parts_call = parts_call_of(call, of);
        return header;
    }
    void arrive(const slot_header& header) {
        link_event event;
        event.owner = client_session;
        event.header = header;
        client->events.push_back(event);
        (void)serving->progress();
    }
    /// What has left since the last look.
    std::vector<slot_header> sent() {
        (void)serving->progress();
        return std::exchange(client->sent, {});
    }
    static status send(exchange& one, std::size_t length) {
        (void)one.part();
        return one.send(length);
    }
    /// … and nothing of it stays behind.
    void expect_lost() {
        EXPECT_EQ(lost, status::protocol_error);
        held.clear();
        (void)serving->progress();
        EXPECT_EQ(client, nullptr);
    }

    worker* serving = nullptr;
    scripted_link* client = nullptr;
    session* client_session = nullptr;
    std::vector<exchange> held;
    status lost = status::ok;
};

TEST_F(sending_parts, room_may_come_before_and_after_the_request) {
    arrive(room(1, 1, 0, 9));
    arrive(request(0, 9));
    arrive(room(2, 1, 0, 9));
    ASSERT_EQ(held.size(), 1U);
    EXPECT_TRUE(held[0].in_parts());
    EXPECT_EQ(held[0].part().size(), 64U);
    EXPECT_EQ(send(held[0], 8), status::ok);
    EXPECT_EQ(send(held[0], 9), status::ok);
    EXPECT_EQ(send(held[0], 1), status::again);
    const auto parts = sent();
    ASSERT_EQ(parts.size(), 2U);
    for (std::uint64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(parts[i].flags, header_flag::more);
        EXPECT_EQ(parts[i].parts_before, i);
        EXPECT_EQ(parts[i].length, 8 + i);
        EXPECT_EQ(check_header(parts[i], message_kind::response), status::ok);
    }
    EXPECT_NE(parts[0].slot, parts[1].slot);
    EXPECT_EQ(held[0].reply(0), status::ok);
    const auto last = sent();
    ASSERT_EQ(last.size(), 1U);
    EXPECT_EQ(last[0].slot, 0U);
    EXPECT_EQ(last[0].flags, 0U);
    EXPECT_EQ(last[0].parts_before, 2U);
    held.clear();
}

TEST_F(sending_parts, room_that_was_not_looked_at_is_not_sent) {
    arrive(request(0, 9));
    EXPECT_TRUE(held.at(0).part().empty());
    arrive(room(1, 1, 0, 9));
    EXPECT_EQ(held.at(0).send(0), status::again) << "nobody has written there";
    EXPECT_EQ(held.at(0).part().size(), 64U);
    EXPECT_EQ(held.at(0).send(0), status::ok);
}

TEST_F(sending_parts, unused_room_returns_after_the_response_and_late_room_at_once) {
    arrive(room(1, 1, 0, 9));
    arrive(room(2, 1, 0, 9));
    arrive(request(0, 9));
    EXPECT_EQ(held.at(0).fail(status::overloaded), status::ok);
    held.clear();
    auto all = sent();
    ASSERT_EQ(all.size(), 3U);
    const auto expect_returned = [](const slot_header& each) {
        EXPECT_EQ(each.flags, 0U);
        EXPECT_EQ(each.code, status::cancelled);
        EXPECT_EQ(each.length, 0U);
    };
    for (const slot_header& each : all)
        if (each.slot != 0) expect_returned(each);
    arrive(room(1, 2, 0, 9));
    all = sent();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].slot, 1U);
    EXPECT_EQ(all[0].generation, 2U);
    expect_returned(all[0]);
    arrive(room(1, 3, 0, 10));
    arrive(request(0, 10));
    EXPECT_EQ(held.size(), 1U) << "the slots are as good as before";
    EXPECT_EQ(send(held[0], 1), status::ok);
    EXPECT_EQ(lost, status::ok);
}

TEST_F(sending_parts, a_request_that_is_refused_gives_its_room_back) {
    arrive(room(1, 1, 0, 9));
    slot_header late = request(0, 9);
    late.deadline_ns = 0;
    arrive(late);
    EXPECT_TRUE(held.empty());
    EXPECT_EQ(sent().size(), 2U);
}

TEST_F(sending_parts, parts_that_the_link_does_not_take_leave_later) {
    arrive(room(1, 1, 0, 9));
    arrive(room(2, 1, 0, 9));
    arrive(request(0, 9));
    client->room = 0;
    EXPECT_EQ(send(held.at(0), 5), status::ok);
    EXPECT_EQ(held.at(0).reply(0), status::ok);
    held.clear();
    EXPECT_TRUE(sent().empty());
    EXPECT_TRUE(serving->holds_exchanges());
    client->room = 100;
    const auto all = sent();
    EXPECT_EQ(all.size() + sent().size(), 3U);
    EXPECT_FALSE(serving->holds_exchanges());
}

/// Until then a request may be on its way to a handler.
TEST_F(sending_parts, a_worker_is_drained_after_its_next_poll) {
    serving->refuse_requests();
    EXPECT_FALSE(serving->drained());
    arrive(plain(0, 1));
    EXPECT_TRUE(held.empty());
    EXPECT_TRUE(serving->drained());
}

TEST_F(sending_parts, a_client_that_leaves_leaves_nothing_behind) {
    arrive(room(1, 1, 0, 9));
    arrive(room(2, 1, 0, 9));
    arrive(request(0, 9));
    arrive(room(3, 1, 4, 5));  // of a call that never comes
    serving->close_session(1, status::closed);
    (void)serving->progress();
    EXPECT_NE(client, nullptr) << "the handler has an exchange";
    EXPECT_EQ(send(held.at(0), 5), status::peer_lost);
    EXPECT_EQ(held.at(0).reply(0), status::peer_lost);
    held.clear();
    (void)serving->progress();
    EXPECT_EQ(client, nullptr);
}

// What no correct client sends.

TEST_F(sending_parts, room_for_a_call_without_parts_is_refused_also_after_early_room) {
    arrive(room(1, 1, 0, 9));
    arrive(plain(0, 9));
    arrive(room(2, 1, 0, 9));
    expect_lost();
}

TEST_F(sending_parts, repeated_room_is_refused) {
    arrive(room(1, 1, 0, 9));
    arrive(room(1, 2, 0, 9));
    expect_lost();
}

TEST_F(sending_parts, room_under_its_last_generation_is_refused) {
    arrive(room(1, 1, 0, 9));
    arrive(request(0, 9));
    EXPECT_EQ(send(held.at(0), 0), status::ok);
    arrive(room(1, 1, 0, 9));
    expect_lost();
}

TEST_F(sending_parts, room_of_a_call_without_parts_is_refused) {
    slot_header plain = request(0, 9);
    plain.flags = 0;
    arrive(plain);
    ASSERT_EQ(held.size(), 1U);
    arrive(room(1, 1, 0, 9));
    expect_lost();
}

TEST_F(sending_parts, room_of_another_generation_of_an_open_call_is_refused) {
    arrive(request(0, 9));
    arrive(room(1, 1, 0, 10));
    expect_lost();
}

TEST_F(sending_parts, room_of_two_calls_in_one_slot_is_refused) {
    arrive(room(1, 1, 0, 9));
    arrive(room(2, 1, 0, 10));
    expect_lost();
}

TEST_F(sending_parts, room_of_a_missing_call_is_refused_with_the_next_call) {
    arrive(room(1, 1, 0, 9));
    arrive(request(0, 10));
    expect_lost();
}

TEST_F(sending_parts, room_for_a_slot_of_room_is_refused) {
    arrive(room(1, 1, 0, 9));
    arrive(room(2, 1, 1, 1));
    expect_lost();
}

TEST_F(sending_parts, room_of_itself_or_of_no_slot_is_refused) {
    arrive(room(1, 1, 1, 5));
    expect_lost();
}

TEST_F(sending_parts, room_of_a_slot_that_does_not_exist_is_refused) {
    arrive(room(1, 1, shape.slots, 5));
    expect_lost();
}

TEST_F(sending_parts, room_of_generation_0_is_refused) {
    arrive(room(1, 1, 0, 0));
    expect_lost();
}

TEST_F(sending_parts, room_larger_than_agreed_is_refused) {
    slot_header large = room(1, 1, 0, 9);
    large.response_room = shape.response_bytes + 1;
    arrive(large);
    expect_lost();
}

TEST_F(sending_parts, both_flags_are_refused) {
    slot_header both = request(0, 9);
    both.flags = header_flag::of_parts;
    arrive(both);
    expect_lost();
}

}  // namespace
}  // namespace accel::core
