// SPDX-License-Identifier: Apache-2.0
// A channel that takes parts, and a server that sends them as no transport of ours would: in any order, or wrongly.
#include "patience.hpp"
#include "unit/scripted_client.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::core {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t slot_count = 6;
constexpr std::size_t slot_bytes = 64;

struct scripted_parts : scripted_client {
    scripted_parts() : scripted_client(slot_count, slot_bytes) {}

    /// Submits a call that takes so many parts. Its room is in `rooms`, in the order in which it left.
    call_id submit(std::uint32_t parts, const submit_options& others = {}) {
        submit_options options = others;
        options.parts = parts;
        options.tag = 7;
        call_view call;
        EXPECT_EQ(client->begin(call), status::ok);
        EXPECT_EQ(client->submit(call.id, 4, options), status::ok);
        return call.id;
    }
    /// Room for parts that the server got.
    [[nodiscard]] std::vector<slot_header> rooms() const {
        std::vector<slot_header> out;
        for (const slot_header& each : server->sent)
            if (each.flags == header_flag::more) out.push_back(each);
        return out;
    }
    void answer(std::uint32_t slot, std::uint32_t generation, std::uint64_t number, std::uint16_t flags,
                status code = status::ok) {
        link_event event;
        event.header.kind = message_kind::response;
        event.header.flags = flags;
        event.header.slot = slot;
        event.header.generation = generation;
        event.header.parts_before = number;
        event.header.code = code;
        event.header.length = flags == 0 ? 0 : 8;
        std::byte* const bytes = server->receive().payload(slot);
        std::memcpy(bytes, &number, sizeof number);
        event.payload = {bytes, event.header.length};
        server->events.push_back(event);
    }
    void part(const slot_header& room, std::uint64_t number) {
        answer(room.slot, room.generation, number, header_flag::more);
    }
    void give_back(const slot_header& room) { answer(room.slot, room.generation, 0, 0, status::cancelled); }
    void last(call_id call, std::uint64_t parts) { answer(call.slot, call.generation, parts, 0); }

    /// The numbers of parts that are handed out now; the last completion as `end`.
    static constexpr std::uint64_t end = 999;
    std::vector<std::uint64_t> poll(bool release = true) {
        std::vector<std::uint64_t> out;
        std::array<completion, slot_count> got;
        for (std::size_t count = client->poll(got); count > 0; count = client->poll(got)) {
            for (const completion& each : std::span{got}.first(count)) {
                EXPECT_EQ(each.tag, 7U);
                std::uint64_t number = end;
                if (each.more) std::memcpy(&number, each.response.data(), sizeof number);
                if (!each.more) last_status = each.status;
                out.push_back(number);
                if (release) {
                    EXPECT_EQ(client->release(each.id), status::ok);
                }
            }
        }
        return out;
    }
    [[nodiscard]] std::uint32_t free_slots() {
        std::vector<call_id> taken;
        call_view call;
        while (client->begin(call) == status::ok) taken.push_back(call.id);
        for (const call_id each : taken) EXPECT_EQ(client->release(each), status::ok);
        return static_cast<std::uint32_t>(taken.size());
    }
    void expect_lost() {
        const auto got = poll();
        ASSERT_FALSE(got.empty());
        EXPECT_EQ(got.back(), end);
        EXPECT_EQ(last_status, status::peer_lost);
        EXPECT_FALSE(client->connected());
    }

    status last_status = status::ok;
};

struct taking_parts : ::testing::Test, scripted_parts {};

using numbers = std::vector<std::uint64_t>;

TEST_F(taking_parts, room_leaves_before_the_request) {
    const call_id call = submit(3);
    ASSERT_EQ(server->sent.size(), 4U);
    for (int i = 0; i < 3; ++i) {
        const slot_header& room = server->sent[static_cast<std::size_t>(i)];
        EXPECT_EQ(room.flags, header_flag::more);
        EXPECT_EQ(room.parts_call, parts_call_of(call.slot, call.generation));
        EXPECT_EQ(room.length, 0U);
        EXPECT_EQ(room.response_room, slot_bytes);
        EXPECT_EQ(check_header(room, message_kind::request), status::ok);
    }
    EXPECT_EQ(server->sent[3].flags, header_flag::parts);
    EXPECT_EQ(server->sent[3].slot, call.slot);
    EXPECT_EQ(free_slots(), slot_count - 4);
}

TEST_F(taking_parts, numbers_restore_the_order) {
    const call_id call = submit(4);
    const auto room = rooms();
    last(call, 4);
    part(room[0], 2);
    part(room[1], 3);
    EXPECT_EQ(poll(), numbers{});
    part(room[2], 1);
    EXPECT_EQ(poll(), numbers{});
    part(room[3], 0);
    EXPECT_EQ(poll(), (numbers{0, 1, 2, 3, end}));
    EXPECT_EQ(last_status, status::ok);
    EXPECT_EQ(free_slots(), slot_count);
    EXPECT_EQ(rooms().size(), 4U) << "no room is given for a call that has its response";
}

TEST_F(taking_parts, a_released_part_is_room_under_another_generation) {
    const call_id call = submit(1);
    const slot_header first = rooms().back();
    part(first, 0);
    EXPECT_EQ(poll(), numbers{0});
    ASSERT_EQ(rooms().size(), 2U);
    const slot_header second = rooms().back();
    EXPECT_EQ(second.slot, first.slot);
    EXPECT_EQ(second.generation, first.generation + 1);
    last(call, 1);
    EXPECT_EQ(poll(), numbers{end});
    EXPECT_EQ(free_slots(), slot_count - 1) << "the server still has one";
    give_back(second);
    EXPECT_EQ(poll(), numbers{});
    EXPECT_EQ(free_slots(), slot_count);
    EXPECT_EQ(client->statistics().stale, 0U);
    EXPECT_EQ(client->statistics().completed, 1U);
}

TEST_F(taking_parts, messages_after_the_end_are_dropped) {
    const call_id call = submit(3);
    const auto room = rooms();
    part(room[0], 0);
    part(room[1], 2);  // waits for the one before it
    EXPECT_EQ(poll(false), numbers{0});
    EXPECT_EQ(client->cancel(call), status::ok);
    EXPECT_EQ(poll(), numbers{end});
    EXPECT_EQ(last_status, status::cancelled);
    EXPECT_EQ(client->release({room[0].slot, room[0].generation}), status::ok);
    EXPECT_EQ(free_slots(), slot_count - 2) << "the call's own, which is owed an answer, and the third";
    part(room[2], 1);
    last(call, 3);
    EXPECT_EQ(poll(), numbers{});
    EXPECT_EQ(free_slots(), slot_count);
    EXPECT_EQ(rooms().size(), 3U);
}

TEST_F(taking_parts, a_cancel_before_the_request_has_left_leaves_nothing_behind) {
    server->room = 0;
    const call_id call = submit(2);
    EXPECT_EQ(client->cancel(call), status::ok);
    EXPECT_EQ(poll(), numbers{end});
    server->room = 100;
    EXPECT_EQ(poll(), numbers{});
    EXPECT_TRUE(server->sent.empty());
    EXPECT_EQ(free_slots(), slot_count);
}

TEST_F(taking_parts, a_cancel_between_room_and_request_sends_an_empty_request) {
    server->room = 1;
    const call_id call = submit(2);
    EXPECT_EQ(client->cancel(call), status::ok);
    EXPECT_EQ(poll(), numbers{end});
    EXPECT_EQ(free_slots(), slot_count - 2) << "the server has room, and is going to have the request";
    server->room = 100;
    EXPECT_EQ(poll(), numbers{});
    ASSERT_EQ(server->sent.size(), 2U);
    const slot_header& request = server->sent.back();
    EXPECT_EQ(request.flags, header_flag::parts);
    EXPECT_EQ(request.slot, call.slot);
    EXPECT_EQ(request.length, 0U);
    EXPECT_EQ(request.deadline_ns, 0) << "the server refuses it";
    last(call, 0);
    give_back(server->sent.front());
    EXPECT_EQ(poll(), numbers{});
    EXPECT_EQ(free_slots(), slot_count);
}

TEST_F(taking_parts, room_that_the_link_does_not_take_leaves_later) {
    submit(1);
    part(rooms().back(), 0);
    server->room = 0;
    EXPECT_EQ(poll(), numbers{0});
    EXPECT_EQ(rooms().size(), 1U);
    server->room = 1;
    EXPECT_EQ(poll(), numbers{});
    EXPECT_EQ(rooms().size(), 2U);
}

/// Each part comes 0.6 of the time after the one before. False: a sleep took longer, as on a busy machine.
bool is_renewed(scripted_parts& at, nanoseconds between) {
    const nanoseconds begun = now();
    const call_id call = at.submit(2, {.timeout = 1h, .part_timeout = between});
    std::this_thread::sleep_for(between * 3 / 5);
    at.part(at.rooms().back(), 0);
    const nanoseconds came = now();
    const numbers first = at.poll();
    if (now() - begun >= between) return false;
    EXPECT_EQ(first, numbers{0});
    std::this_thread::sleep_for(between * 3 / 5);
    const numbers none = at.poll();
    if (now() - came >= between) return false;
    EXPECT_EQ(none, numbers{}) << "the first part has renewed it";
    std::this_thread::sleep_for(between);
    EXPECT_EQ(at.poll(), numbers{at.end});
    EXPECT_EQ(at.last_status, status::timed_out);
    EXPECT_TRUE(at.board->cancelled(call)) << "the server is told";
    return true;
}

TEST(taking_parts_in_time, the_time_between_parts_is_renewed_by_each) {
    tests::with_enough_time(200ms, [](nanoseconds between) {
        scripted_parts at;
        return is_renewed(at, between);
    });
}

TEST_F(taking_parts, a_lost_connection_ends_the_call_once) {
    submit(3);
    const auto room = rooms();
    part(room[0], 0);
    part(room[1], 2);
    EXPECT_EQ(poll(false), numbers{0});
    watch->end(status::peer_lost);
    EXPECT_EQ(poll(), numbers{end});
    EXPECT_EQ(last_status, status::peer_lost);
    EXPECT_EQ(client->release({room[0].slot, room[0].generation}), status::ok);
    EXPECT_EQ(poll(), numbers{});
    EXPECT_EQ(rooms().size(), 3U);
}

// What no correct server sends.

TEST_F(taking_parts, a_number_that_came_before_is_refused) {
    submit(3);
    part(rooms()[0], 0);
    EXPECT_EQ(poll(), numbers{0});
    part(rooms()[1], 0);
    expect_lost();
}

TEST_F(taking_parts, a_number_twice_is_refused) {
    submit(3);
    part(rooms()[0], 1);
    part(rooms()[1], 1);
    expect_lost();
}

TEST_F(taking_parts, a_number_far_ahead_is_refused) {
    submit(3);
    part(rooms()[0], slot_count);
    expect_lost();
}

TEST_F(taking_parts, a_part_after_the_last_is_refused) {
    const call_id call = submit(3);
    last(call, 1);
    part(rooms()[0], 1);
    expect_lost();
}

TEST_F(taking_parts, a_part_without_room_is_refused) {
    const call_id call = submit(1);
    answer(call.slot, call.generation, 0, header_flag::more);
    expect_lost();
}

TEST_F(taking_parts, a_part_of_another_generation_is_refused) {
    submit(1);
    slot_header room = rooms().back();
    --room.generation;
    part(room, 0);
    expect_lost();
}

TEST_F(taking_parts, a_part_that_failed_is_refused) {
    submit(1);
    const slot_header room = rooms().back();
    answer(room.slot, room.generation, 0, header_flag::more, status::overloaded);
    expect_lost();
}

TEST_F(taking_parts, a_response_that_counts_too_many_is_refused) {
    const call_id call = submit(2);
    part(rooms()[0], 0);
    last(call, 3);
    expect_lost();
}

TEST_F(taking_parts, a_response_that_leaves_out_an_early_part_is_refused) {
    const call_id call = submit(2);
    part(rooms()[0], 1);
    last(call, 0);
    expect_lost();
}

TEST_F(taking_parts, a_response_that_counts_only_the_parts_before_an_early_one_is_refused) {
    const call_id call = submit(2);
    part(rooms()[0], 1);
    last(call, 1);
    expect_lost();
}

TEST_F(taking_parts, a_response_that_counts_too_few_is_refused) {
    const call_id call = submit(2);
    part(rooms()[0], 0);
    last(call, 0);
    expect_lost();
}

}  // namespace
}  // namespace accel::core
