// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/send_queue.hpp"
#include "backends/tcp/stream_reader.hpp"
#include "backends/tcp/wire.hpp"
#include "tcp_bytes.hpp"
#include "tcp_pair.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

/// The parser and the queue of messages to send, without sockets.
namespace accel::tcp {
namespace {

using namespace testing;
using core::fragment_header;
using outcome = stream_reader::outcome;

constexpr std::uint32_t slots = 4;
constexpr std::size_t capacity = 8192;

stream_reader request_reader() {
    return {message_kind::request, make_slots(slots, capacity)};
}
stream_reader response_reader() {
    return {message_kind::response, make_slots(slots, capacity)};
}

bool refused(const bytes& stream) {
    stream_reader reader = request_reader();
    return feed(reader, stream, stream.size()).violation;
}

TEST(tcp_stream, messages_in_pieces_of_any_size_arrive) {
    bytes stream;
    std::vector<bytes> sent;
    for (std::uint32_t i = 0; i < 40; ++i) {
        sent.push_back(random_bytes((i * 397) % (capacity + 1), i));
        append(stream, whole(i % slots, i, sent.back()));
    }
    for (const std::size_t chunk : {1U, 2U, 15U, 63U, 64U, 65U, 100U, 4096U, 5000U, 1U << 20}) {
        stream_reader reader = request_reader();
        const feed_result got = feed(reader, stream, chunk);
        ASSERT_FALSE(got.violation) << chunk;
        ASSERT_EQ(got.messages.size(), sent.size()) << chunk;
        for (std::size_t i = 0; i < sent.size(); ++i) {
            EXPECT_EQ(got.messages[i].header.generation, i);
            EXPECT_EQ(got.messages[i].payload, sent[i]);
        }
        EXPECT_FALSE(reader.mid_message());
    }
}

TEST(tcp_stream, extensions_land_in_front_of_the_header) {
    const auto memory = make_slots(slots, capacity);
    for (const std::size_t chunk : {1U, 7U, 1000U}) {
        stream_reader reader(message_kind::request, memory);
        const bytes extension = random_bytes(24, 5);
        const bytes payload = random_bytes(100, 6);
        slot_header h = request(2, 1, payload.size());
        h.extension_bytes = 24;
        bytes stream;
        append(stream, h);
        append(stream, extension);
        append(stream, payload);
        const feed_result got = feed(reader, stream, chunk);
        ASSERT_EQ(got.messages.size(), 1U);
        EXPECT_EQ(got.messages[0].payload, payload);
        EXPECT_EQ(std::memcmp(memory->header(2) - 24, extension.data(), 24), 0);
    }
}

TEST(tcp_stream, truncation_at_any_offset_is_no_message) {
    const bytes stream = whole(1, 7, random_bytes(64, 1));
    for (std::size_t length = 1; length < stream.size(); ++length) {
        stream_reader reader = request_reader();
        const feed_result got = feed(reader, std::span(stream).first(length), 16);
        EXPECT_TRUE(got.messages.empty()) << length;
        EXPECT_FALSE(got.violation) << length;
        EXPECT_TRUE(reader.mid_message()) << length;
    }
}

TEST(tcp_stream, garbage_at_any_offset_stays_within_the_slots) {
    const bytes good = whole(1, 7, random_bytes(64, 1));
    const bytes tail = random_bytes(2 * capacity, 3);
    std::size_t refusals = 0;
    for (std::size_t offset = 0; offset < good.size(); ++offset) {
        for (int bit = 0; bit < 8; ++bit) {
            bytes stream = good;
            stream[offset] ^= std::byte{1} << bit;
            append(stream, tail);
            stream_reader reader = request_reader();
            const feed_result got = feed(reader, stream, 333);
            refusals += got.violation ? 1 : 0;
            for (const received_message& m : got.messages) {
                EXPECT_LT(m.header.slot, slots);
                EXPECT_LE(m.payload.size(), capacity);
                EXPECT_EQ(core::check_header(m.header, message_kind::request), status::ok);
            }
            // Version and kind are checked wherever they are changed.
            const bool caught = got.violation && got.messages.empty();
            EXPECT_TRUE(offset >= 2 || caught) << offset << ' ' << bit;
        }
    }
    EXPECT_GT(refusals, 0U);
}

TEST(tcp_stream, messages_that_no_correct_peer_sends_are_refused) {
    const bytes payload = random_bytes(8, 1);
    EXPECT_FALSE(refused(whole(0, 1, payload)));
    EXPECT_TRUE(refused(whole(slots, 1, payload)));
    bytes stream;
    append(stream, request(0, 1, capacity + 1));
    EXPECT_TRUE(refused(stream));
    slot_header h = request(0, 1, 8);
    h.kind = message_kind::response;
    stream.clear();
    append(stream, h);
    EXPECT_TRUE(refused(stream));
    h = request(0, 1, 8);
    h.extension_bytes = 4;
    stream.clear();
    append(stream, h);
    EXPECT_TRUE(refused(stream));
    h = request(0, 1, 8);
    h.flags = core::header_flag::more;
    stream.clear();
    append(stream, h);
    EXPECT_TRUE(refused(stream));
}

TEST(tcp_stream, room_for_parts_and_parts_keep_their_flags) {
    bytes stream;
    slot_header room = request(0, 1, 0);
    room.flags = core::header_flag::more;
    room.parts_call = core::parts_call_of(1, 9);
    append(stream, room);
    slot_header call = fragmented(request(1, 9, 8));
    call.flags |= core::header_flag::parts;
    append(stream, call);
    append(stream, fragment(1, 9, 8));
    append(stream, random_bytes(8, 1));
    stream_reader reader = request_reader();
    const auto got = feed(reader, stream, 7);
    ASSERT_EQ(got.messages.size(), 2U);
    EXPECT_EQ(got.messages[0].header.flags, core::header_flag::more);
    EXPECT_EQ(got.messages[0].header.parts_call, room.parts_call);
    EXPECT_EQ(got.messages[1].header.flags, core::header_flag::parts);

    stream_reader client = response_reader();
    client.expect(2, 5, {});
    slot_header part = request(2, 5, 8);
    part.kind = message_kind::response;
    part.flags = core::header_flag::more;
    stream.clear();
    append(stream, part);
    append(stream, random_bytes(8, 2));
    const auto parts = feed(client, stream, 9);
    ASSERT_EQ(parts.messages.size(), 1U);
    EXPECT_EQ(parts.messages[0].header.flags, core::header_flag::more);
}

TEST(tcp_stream, second_message_into_a_busy_slot_is_refused) {
    bytes stream = whole(0, 1, random_bytes(8, 1));
    append(stream, whole(0, 2, random_bytes(8, 2)));
    stream_reader reader = request_reader();
    EXPECT_TRUE(feed(reader, stream, stream.size(), false).violation);
    stream_reader consuming = request_reader();
    EXPECT_EQ(feed(consuming, stream, 72).messages.size(), 2U);
}

TEST(tcp_stream, fragments_interleave_by_slot) {
    const bytes a = random_bytes(1000, 1);
    const bytes b = random_bytes(700, 2);
    bytes stream;
    append(stream, fragmented(request(0, 1, 1000)));
    append(stream, fragment(0, 1, 600));
    append(stream, bytes(a.begin(), a.begin() + 600));
    append(stream, fragmented(request(1, 9, 700)));
    append(stream, fragment(1, 9, 1));
    append(stream, bytes(b.begin(), b.begin() + 1));
    append(stream, whole(2, 3, random_bytes(64, 3)));
    append(stream, fragment(0, 1, 400));
    append(stream, bytes(a.begin() + 600, a.end()));
    append(stream, fragment(1, 9, 699));
    append(stream, bytes(b.begin() + 1, b.end()));
    for (const std::size_t chunk : {1U, 17U, 4096U}) {
        stream_reader reader = request_reader();
        const feed_result got = feed(reader, stream, chunk);
        ASSERT_EQ(got.messages.size(), 3U);
        EXPECT_EQ(got.messages[0].header.slot, 2U);
        EXPECT_EQ(got.messages[1].payload, a);
        EXPECT_EQ(got.messages[1].header.flags, 0);
        EXPECT_EQ(got.messages[2].payload, b);
    }
}

TEST(tcp_stream, fragments_that_do_not_add_up_are_refused) {
    bytes start;
    append(start, fragmented(request(0, 1, 100)));
    const auto with = [&](const fragment_header& f) {
        bytes stream = start;
        append(stream, f);
        append(stream, bytes(f.length));
        return stream;
    };
    EXPECT_FALSE(refused(with(fragment(0, 1, 100))));
    EXPECT_TRUE(refused(with(fragment(0, 1, 101))));
    EXPECT_TRUE(refused(with(fragment(0, 1, 0))));
    EXPECT_TRUE(refused(with(fragment(0, 2, 50))));
    EXPECT_TRUE(refused(with(fragment(1, 1, 50))));
    EXPECT_TRUE(refused(with(fragment(slots, 1, 50))));
    bytes later = with(fragment(0, 1, 60));
    append(later, fragment(0, 1, 41));
    EXPECT_TRUE(refused(later)) << "60 of the 100 bytes are there already";
    fragment_header reserved = fragment(0, 1, 50);
    reserved.reserved = 1;
    EXPECT_TRUE(refused(with(reserved)));

    bytes twice = start;
    append(twice, fragmented(request(0, 2, 100)));
    EXPECT_TRUE(refused(twice));
    bytes empty;
    append(empty, fragmented(request(0, 1, 0)));
    EXPECT_TRUE(refused(empty));
    bytes alone;
    append(alone, fragment(0, 1, 10));
    EXPECT_TRUE(refused(alone));
    // A message that came whole takes no fragments.
    bytes after = whole(0, 1, random_bytes(10, 1));
    append(after, fragment(0, 1, 1));
    EXPECT_TRUE(refused(after));
}

TEST(tcp_stream, only_a_client_says_goodbye) {
    bytes stream = whole(0, 1, random_bytes(10, 1));
    append(stream, fragmented(request(1, 1, 100)));
    append(stream, make_goodbye());
    for (const std::size_t chunk : {1U, 4096U}) {
        stream_reader reader = request_reader();
        const feed_result got = feed(reader, stream, chunk);
        EXPECT_TRUE(got.goodbye);
        EXPECT_EQ(got.messages.size(), 1U);
    }
    bytes alone;
    append(alone, make_goodbye());
    stream_reader client = response_reader();
    EXPECT_TRUE(feed(client, alone, 16).violation);
    fragment_header broken = make_goodbye();
    broken.length = 1;
    alone.clear();
    append(alone, broken);
    EXPECT_TRUE(refused(alone));
}

bytes response(std::uint32_t slot, std::uint32_t generation, const bytes& payload) {
    slot_header h = request(slot, generation, payload.size());
    h.kind = message_kind::response;
    bytes stream;
    append(stream, h);
    append(stream, payload);
    return stream;
}

TEST(tcp_stream, responses_come_only_where_they_are_expected) {
    const bytes stream = response(1, 5, random_bytes(32, 1));
    stream_reader nobody = response_reader();
    EXPECT_TRUE(feed(nobody, stream, 9).violation);
    stream_reader stale = response_reader();
    stale.expect(1, 4, {});
    EXPECT_TRUE(feed(stale, stream, 9).violation);
    stream_reader right = response_reader();
    right.expect(1, 5, {});
    EXPECT_EQ(feed(right, stream, 9).messages.size(), 1U);
    EXPECT_TRUE(feed(right, stream, 9).violation) << "the same answer twice";
}

TEST(tcp_stream, a_response_is_bounded_by_its_response_target) {
    bytes room(32);
    stream_reader reader = response_reader();
    reader.expect(1, 5, room);
    const bytes payload = random_bytes(32, 1);
    ASSERT_EQ(feed(reader, response(1, 5, payload), 9).messages.size(), 1U);
    EXPECT_EQ(room, payload);
    reader.expect(1, 6, room);
    EXPECT_TRUE(feed(reader, response(1, 6, random_bytes(33, 1)), 9).violation);
}

TEST(tcp_stream, a_redirect_at_any_offset_leaves_the_target_alone) {
    const bytes payload = random_bytes(90, 1);
    const bytes stream = response(1, 5, payload);
    for (std::size_t cut = 0; cut < stream.size(); ++cut) {
        bytes room(100);
        stream_reader reader = response_reader();
        reader.expect(1, 5, room);
        EXPECT_TRUE(feed(reader, std::span(stream).first(cut), 13).messages.empty());
        reader.redirect(1);
        const bytes before = room;
        const feed_result got = feed(reader, std::span(stream).subspan(cut), 13);
        ASSERT_EQ(got.messages.size(), 1U) << cut;
        EXPECT_EQ(got.messages[0].payload, payload) << cut;
        EXPECT_EQ(room, before) << cut;
    }
}

/// What a socket would take of a plan, appended to `stream`.
void take(send_queue& queue, bytes& stream, std::size_t most, std::vector<std::uint32_t>& finished) {
    send_batch batch;
    queue.plan(batch, 1 << 20);
    std::size_t total = 0;
    bytes planned;
    for (std::size_t i = 0; i < batch.count; ++i) {
        const auto* from = static_cast<const std::byte*>(batch.pieces[i].iov_base);
        planned.insert(planned.end(), from, from + batch.pieces[i].iov_len);
        total += batch.pieces[i].iov_len;
    }
    ASSERT_EQ(total, batch.bytes);
    ASSERT_GT(total, 0U);
    std::size_t count = std::min(most, total);
    stream.insert(stream.end(), planned.begin(), planned.begin() + static_cast<std::ptrdiff_t>(count));
    for (std::uint32_t slot = queue.book(count); slot != send_queue::none; slot = queue.book(count))
        finished.push_back(slot);
    ASSERT_EQ(count, 0U);
}

TEST(tcp_queue, messages_sent_in_pieces_are_read_unchanged) {
    constexpr std::size_t large = 3 * fragment_bytes + 5;
    for (std::uint32_t seed = 0; seed < 30; ++seed) {
        std::minstd_rand random(seed + 1);
        const auto from = make_slots(slots, large);
        stream_reader reader(message_kind::request, make_slots(slots, large));
        send_queue queue(slots);
        std::vector<bytes> lent(slots);
        std::vector<bytes> expected(slots);
        std::vector<std::uint32_t> finished;
        bytes stream;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            const std::size_t size = random() % 3 == 0 ? random() % 200 : random() % (large + 1);
            expected[slot] = random_bytes(size, seed * 100 + slot);
            slot_header h = request(slot, seed, size);
            h.extension_bytes = random() % 2 == 0 ? 16 : 0;
            std::memcpy(from->header(slot), &h, sizeof h);
            const bool is_lent = random() % 2 == 0;
            if (is_lent) lent[slot] = expected[slot];
            if (!is_lent && size > 0) std::memcpy(from->payload(slot), expected[slot].data(), size);
            const std::byte* at = is_lent ? lent[slot].data() : from->payload(slot);
            queue.push(slot, from->header(slot), {at, size}, is_lent, is_lent && random() % 2 == 0);
            for (auto i = random() % 3; i > 0 && !queue.empty(); --i)
                take(queue, stream, 1 + random() % (random() % 2 == 0 ? 50 : 2 * fragment_bytes), finished);
            if (is_lent && random() % 2 == 0) {
                queue.unlend(slot, from->payload(slot));
                EXPECT_FALSE(queue.lends(slot));
                std::fill(lent[slot].begin(), lent[slot].end(), std::byte{0xee});
            }
        }
        while (!queue.empty()) take(queue, stream, 1 + random() % (2 * fragment_bytes), finished);
        EXPECT_EQ(finished.size(), slots);
        const feed_result got = feed(reader, stream, 1 + random() % 100'000);
        ASSERT_FALSE(got.violation) << seed;
        ASSERT_EQ(got.messages.size(), slots) << seed;
        for (std::size_t i = 0; i < slots; ++i) {
            EXPECT_EQ(got.messages[i].header.slot, finished[i]);
            EXPECT_EQ(got.messages[i].payload, expected[finished[i]]);
        }
    }
}

TEST(tcp_queue, short_messages_overtake_long_ones) {
    constexpr std::size_t large = 16 * fragment_bytes;
    const auto from = make_slots(slots, large);
    send_queue queue(slots);
    bytes stream;
    std::vector<std::uint32_t> finished;
    const auto push = [&](std::uint32_t slot, std::size_t size) {
        const slot_header h = request(slot, 1, size);
        std::memcpy(from->header(slot), &h, sizeof h);
        queue.push(slot, from->header(slot), {from->payload(slot), size}, false, false);
    };
    push(0, large);
    push(1, large);
    take(queue, stream, 1000, finished);
    push(2, 64);
    const std::size_t before = stream.size();
    while (finished.empty()) take(queue, stream, 1 << 20, finished);
    EXPECT_EQ(finished.front(), 2U);
    EXPECT_LE(stream.size() - before, 4 * fragment_bytes);
}

}  // namespace
}  // namespace accel::tcp
