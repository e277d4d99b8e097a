// SPDX-License-Identifier: Apache-2.0
// A channel that takes parts, and a server that sends them as no transport of ours would: in any order, or wrongly.
#include "patience.hpp"
#include "unit/scripted_client.hpp"

#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
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
        const auto call = client->begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(client->submit(call->id, 4, options), status::ok);
        return call->id;
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
        event.header.length = flags == 0 || slot >= slot_count ? 0 : 8;
        std::byte* const bytes = server->receive().payload(slot);
        std::memcpy(bytes, &number, event.header.length);
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
    std::vector<std::uint64_t> poll() {
        std::vector<std::uint64_t> out;
        std::array<completion, slot_count> got;
        for (std::size_t count = client->poll(got); count > 0; count = client->poll(got)) {
            for (completion& each : std::span{got}.first(count)) {
                EXPECT_EQ(each.tag, 7U);
                std::uint64_t number = end;
                if (each.more) std::memcpy(&number, each.response.data(), sizeof number);
                if (!each.more) last_status = each.status;
                out.push_back(number);
                each.release();
            }
        }
        return out;
    }
    [[nodiscard]] std::uint32_t free_slots() {
        std::vector<call_id> taken;
        while (const auto call = client->begin()) taken.push_back(call->id);
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

/// What a server says: a part in room `in`, or what the kind says.
struct said {
    enum kind { part, last, back, read, stale, failed, both_flags, in_call, no_slot } what;
    std::uint32_t in;
    std::uint64_t number;

    void to(scripted_parts& client, call_id call, const std::vector<slot_header>& rooms) const {
        constexpr std::uint16_t more = header_flag::more;
        const auto [slot, generation] = std::pair{rooms.at(in).slot, rooms.at(in).generation};
        switch (what) {
            case part:
                return client.part(rooms[in], number);
            case last:
                return client.last(call, number);
            case back:
                return client.give_back(rooms[in]);
            case read:
                EXPECT_EQ(client.poll().size(), number);
                return;
            case stale:
                return client.answer(slot, generation - 1, number, more);
            case failed:
                return client.answer(slot, generation, number, more, status::overloaded);
            case both_flags:
                return client.answer(slot, generation, number, header_flag::of_parts);
            case in_call:
                return client.answer(call.slot, call.generation, number, more);
            case no_slot:
                return client.answer(slot_count, generation, number, more);
        }
    }
};

/// What no correct server sends ends the session; what is next to it does not. The call gives room for three parts.
TEST(refused_parts, messages_of_no_correct_server_end_the_session) {
    using enum said::kind;
    struct row {
        const char* what;
        bool good;
        std::vector<said> messages;
    };
    const row all[] = {
        {"a number that came before", false, {{part, 0, 0}, {read, 0, 1}, {part, 1, 0}}},
        {"an early number twice", false, {{part, 0, 1}, {part, 1, 1}}},
        {"two early numbers", true, {{part, 0, 2}, {part, 1, 1}, {read, 0, 0}}},
        {"room that was used", false, {{part, 0, 0}, {part, 0, 1}}},
        {"the highest number", true, {{part, 0, slot_count - 1}, {read, 0, 0}}},
        {"a number too far ahead", false, {{part, 0, slot_count}}},
        {"a part without room", false, {{in_call, 0, 0}}},
        {"a slot that does not exist", false, {{no_slot, 0, 0}}},
        {"another generation", false, {{stale, 0, 0}}},
        {"a part that failed", false, {{failed, 0, 0}}},
        {"both flags", false, {{both_flags, 0, 0}}},
        {"the last part after the response", true, {{last, 0, 2}, {part, 0, 1}, {read, 0, 0}}},
        {"a part beyond the last", false, {{last, 0, 2}, {part, 0, 2}}},
        {"a response that counts all that have room", true, {{part, 0, 0}, {last, 0, 3}, {read, 0, 1}}},
        {"a response that counts more", false, {{part, 0, 0}, {last, 0, 4}}},
        {"a response that counts room that came back", false, {{back, 0, 0}, {last, 0, 3}}},
        {"a response that counts too few", false, {{part, 0, 0}, {last, 0, 0}}},
        {"a response that counts an early part", true, {{part, 0, 1}, {last, 0, 2}, {read, 0, 0}}},
        {"a response that leaves out an early part", false, {{part, 0, 1}, {last, 0, 0}}},
        {"a response that counts only those before an early part", false, {{part, 0, 1}, {last, 0, 1}}},
    };
    for (const row& each : all) {
        SCOPED_TRACE(each.what);
        scripted_parts client;
        const call_id call = client.submit(3);
        const auto rooms = client.rooms();
        for (const said& one : each.messages) one.to(client, call, rooms);
        if (!each.good) client.expect_lost();
        EXPECT_EQ(client.client->connected(), each.good);
    }
}

}  // namespace
}  // namespace accel::core
