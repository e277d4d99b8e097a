// SPDX-License-Identifier: Apache-2.0
// Responses that the parser puts into lists of ranges, without sockets; and over links, of which one is given up.
#include "core/lent_range.hpp"
#include "tcp_bytes.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tcp {
namespace {

using namespace testing;

constexpr std::size_t most_bytes = 64 << 10;

/// Ranges with as many bytes between them, which nobody may write.
class torn_memory {
  public:
    torn_memory(std::size_t count, std::size_t each) : bytes_(2 * count * each, gap), each_(each) {
        for (std::size_t i = 0; i < count; ++i) ranges_.push_back({bytes_.data() + 2 * i * each, each, some_region()});
    }
    [[nodiscard]] std::span<const core::lent_range> ranges() const { return ranges_; }
    [[nodiscard]] std::size_t size() const { return ranges_.size() * each_; }
    [[nodiscard]] bytes joined() const {
        bytes out;
        for (const core::lent_range& each : ranges_) out.insert(out.end(), each.data, each.data + each.size);
        return out;
    }
    /// True: the first bytes are these, and all others as they were.
    [[nodiscard]] bool has(const bytes& first) const {
        const bytes all = joined();
        const bool rest = std::all_of(all.begin() + static_cast<std::ptrdiff_t>(first.size()), all.end(),
                                      [](std::byte each) { return each == gap; });
        return rest && same(std::span(all).first(first.size()), first) && gaps();
    }
    void fill(std::byte with) { std::fill(bytes_.begin(), bytes_.end(), with); }
    [[nodiscard]] bool all(std::byte with) const {
        return std::all_of(bytes_.begin(), bytes_.end(), [with](std::byte each) { return each == with; });
    }

  private:
    static constexpr std::byte gap{0xa5};
    [[nodiscard]] bool gaps() const {
        for (const core::lent_range& each : ranges_)
            for (std::size_t i = each_; i < 2 * each_; ++i)
                if (each.data[i] != gap) return false;
        return true;
    }
    bytes bytes_;
    std::size_t each_;
    std::vector<core::lent_range> ranges_;
};

slot_header response(std::uint32_t slot, std::size_t length) {
    slot_header h = testing::request(slot, 7, length);
    h.kind = message_kind::response;
    return h;
}

/// In one record, or in three, with a short response of another slot between them.
bytes answer(const bytes& payload, bool in_fragments) {
    bytes stream;
    if (!in_fragments || payload.size() < 3) {
        append(stream, response(1, payload.size()));
        append(stream, payload);
        return stream;
    }
    append(stream, fragmented(response(1, payload.size())));
    const std::size_t third = payload.size() / 3;
    for (const auto& [from, to] : {std::pair{std::size_t{0}, third}, {third, 2 * third}, {2 * third, payload.size()}}) {
        append(stream, fragment(1, 7, static_cast<std::uint32_t>(to - from)));
        stream.insert(stream.end(), payload.begin() + static_cast<std::ptrdiff_t>(from),
                      payload.begin() + static_cast<std::ptrdiff_t>(to));
        if (from != 0) continue;
        append(stream, response(0, 3));
        append(stream, bytes(3, std::byte{3}));
    }
    return stream;
}

struct scattering {
    std::shared_ptr<core::slot_memory> memory = make_slots(2, most_bytes);
    stream_reader reader{message_kind::response, memory};

    explicit scattering(const torn_memory& into) {
        reader.expect(0, 7, {});
        reader.expect_scattered(1, 7, into.ranges(), into.size());
    }
    [[nodiscard]] bytes slot(std::size_t length) const { return {memory->payload(1), memory->payload(1) + length}; }
};

TEST(tcp_scatter, a_response_in_pieces_of_any_size_fills_its_ranges) {
    constexpr std::size_t many = read_targets::max_pieces + 76;
    for (const auto& [count, each] : {std::pair<std::size_t, std::size_t>{1, 900}, {7, 100}, {many, 17}}) {
        for (const std::size_t missing : {std::size_t{0}, std::size_t{1}, each}) {
            for (const std::size_t most : {std::size_t{1}, std::size_t{3}, read_targets::max_pieces}) {
                for (const std::size_t chunk : {1U, 100U, 1U << 20}) {
                    torn_memory into(count, each);
                    scattering to(into);
                    const bytes payload = random_bytes(into.size() - missing, 5);
                    const bytes stream = answer(payload, most == 3);
                    const feed_result got = feed(to.reader, stream, chunk, false, most);
                    ASSERT_FALSE(got.violation);
                    ASSERT_FALSE(got.messages.empty());
                    EXPECT_EQ(got.messages.back().header.length, payload.size());
                    EXPECT_TRUE(into.has(payload)) << count << " of " << each << " in steps of " << chunk;
                    EXPECT_EQ(to.slot(payload.size()), bytes(payload.size())) << "nothing is copied";
                    EXPECT_FALSE(to.reader.mid_message());
                }
            }
        }
    }
}

TEST(tcp_scatter, a_retracted_response_moves_to_its_slot_with_the_bytes_so_far) {
    torn_memory into(50, 40);
    const bytes payload = random_bytes(into.size(), 8);
    for (const bool in_fragments : {false, true}) {
        const bytes stream = answer(payload, in_fragments);
        for (std::size_t cut = 0; cut < stream.size(); cut += 37) {
            into.fill(std::byte{1});
            scattering to(into);
            (void)feed(to.reader, std::span(stream).first(cut), 64);
            to.reader.redirect(1);
            into.fill(std::byte{2});
            const feed_result got = feed(to.reader, std::span(stream).subspan(cut), 64);
            ASSERT_FALSE(got.violation);
            ASSERT_EQ(got.messages.back().header.slot, 1U);
            EXPECT_EQ(got.messages.back().payload, payload) << cut;
            EXPECT_TRUE(into.all(std::byte{2})) << cut;
        }
    }
}

TEST(tcp_scatter, the_text_of_a_failure_goes_to_the_slot) {
    const torn_memory into(3, 8);
    scattering to(into);
    const bytes why = random_bytes(100, 9);
    slot_header h = response(1, why.size());
    h.code = status::application_error;
    bytes stream;
    append(stream, h);
    append(stream, why);
    const feed_result got = feed(to.reader, stream, 50);
    ASSERT_EQ(got.messages.size(), 1U);
    EXPECT_EQ(got.messages[0].payload, why);
    EXPECT_TRUE(into.has({}));
}

TEST(tcp_scatter, a_response_that_is_longer_than_its_ranges_is_refused) {
    const torn_memory into(3, 8);
    scattering to(into);
    const feed_result got = feed(to.reader, answer(random_bytes(into.size() + 1, 1), false), 1000);
    EXPECT_TRUE(got.violation);
    EXPECT_TRUE(into.has({}));
}

TEST(tcp_scatter, the_next_response_goes_to_its_own_target) {
    const torn_memory into(4, 16);
    scattering to(into);
    const bytes first = random_bytes(into.size(), 1);
    ASSERT_EQ(feed(to.reader, answer(first, false), 1000).messages.size(), 1U);
    to.reader.expect(1, 7, {});
    const bytes next = random_bytes(into.size(), 2);
    const feed_result got = feed(to.reader, answer(next, false), 1000);
    ASSERT_EQ(got.messages.size(), 1U);
    EXPECT_EQ(got.messages[0].payload, next);
    EXPECT_TRUE(into.has(first));
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

}  // namespace
}  // namespace accel::tcp
