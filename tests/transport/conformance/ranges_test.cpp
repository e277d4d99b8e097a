// SPDX-License-Identifier: Apache-2.0
// Requests gathered from many ranges of memory, and responses scattered into many.
#include "rig.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace accel::tests {
namespace {

/// Bytes of which every other stretch is lent, so that no two ranges are neighbours.
class spread_memory {
  public:
    spread_memory(context& within, std::size_t count, std::size_t each)
        : memory_(within.allocate(2 * count * each).value()), each_(each) {
        ranges_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) ranges_.push_back(memory_.part(2 * i * each, each).value());
    }
    [[nodiscard]] std::vector<slice>& ranges() { return ranges_; }
    [[nodiscard]] std::size_t bytes() const { return ranges_.size() * each_; }
    [[nodiscard]] region& memory() { return memory_; }
    void fill_whole(std::uint64_t seed) { fill(memory_.whole().bytes(), seed); }

  private:
    region memory_;
    std::size_t each_;
    std::vector<slice> ranges_;
};

[[nodiscard]] std::vector<std::byte> joined(std::span<const slice> ranges) {
    std::vector<std::byte> out;
    for (const slice& each : ranges) out.insert(out.end(), each.bytes().begin(), each.bytes().end());
    return out;
}

/// The region's last byte and what lies behind it, as no correct program makes it.
[[nodiscard]] slice behind(const region& memory, std::size_t bytes) {
    struct layout {
        std::byte* data;
        std::size_t size;
        const core::region_state* region;
    };
    const slice whole = memory.whole();
    return std::bit_cast<slice>(layout{whole.data() + whole.size() - 1, bytes, whole.region()});
}

/// A short answer that tells all bytes of a long request. A piece at a time: sanitizers look at each byte that is read
/// alone.
[[nodiscard]] std::uint64_t digest(std::span<const std::byte> bytes) {
    std::uint64_t out = bytes.size();
    for (std::size_t at = 0; at < bytes.size(); at += pieces::most) {
        std::uint64_t words[pieces::most / sizeof(std::uint64_t)]{};
        std::memcpy(words, bytes.data() + at, std::min(bytes.size() - at, pieces::most));
        for (const std::uint64_t each : words) out = mix(out ^ each);
    }
    return out;
}

void answer_digest(exchange one) {
    const std::vector<std::byte> request = copy_of(one.request());
    const std::array<std::uint64_t, 2> answer{request.size(), digest(request)};
    copy(one.response(), std::as_bytes(std::span(answer)));
    (void)one.reply(sizeof answer);
}

[[nodiscard]] bool tells(std::span<const std::byte> response, std::span<const std::byte> request) {
    std::array<std::uint64_t, 2> answer{};
    if (response.size() != sizeof answer) return false;
    std::memcpy(answer.data(), response.data(), sizeof answer);
    return answer[0] == request.size() && answer[1] == digest(request);
}

class ranges : public on_every_backend {
  protected:
    static channel_options client_with(std::size_t request_bytes, std::uint32_t slots = 2) {
        channel_options options = calm_client();
        options.request_bytes = request_bytes;
        options.slots = slots;
        return options;
    }
    static server_options server_for(std::size_t request_bytes) {
        server_options options = calm_server();
        options.max_request_bytes = std::max(options.max_request_bytes, request_bytes);
        return options;
    }
    static call_id submit(checked_channel& client, std::span<const slice> list, const submit_options& options = {}) {
        call_view call;
        EXPECT_EQ(client.begin(call), status::ok);
        EXPECT_EQ(client.submit(call.id, list, options), status::ok);
        return call.id;
    }
    static status try_submit(checked_channel& client, std::span<const slice> list, const submit_options& options = {}) {
        call_view call;
        EXPECT_EQ(client.begin(call), status::ok);
        const status outcome = client.submit(call.id, list, options);
        EXPECT_TRUE(outcome == status::ok || client.release(call.id) == status::ok);
        return outcome;
    }
    /// A long request leaves while its channel is polled.
    static bool arrives(checked_channel& client, const held_exchanges& held) {
        return eventually(patience(10s), [&] {
            completion none;
            return client.poll({&none, 1}) == 0 && held.size() > 0;
        });
    }
    static void expect_digest(checked_channel& client, std::span<const slice> list) {
        const completion c = client.next(patience(20s));
        ASSERT_EQ(c.status, status::ok) << to_string(c.status);
        EXPECT_TRUE(tells(c.response, joined(list)));
        EXPECT_EQ(client.release(c.id), status::ok);
    }
};

TEST_P(ranges, many_ranges_arrive_as_one_request) {
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{17}, std::size_t{1000}}) {
        rig r(GetParam(), answer_digest, server_for(1 << 20));
        auto client = r.connect(client_with(1 << 20));
        for (const std::size_t each : {std::size_t{7}, std::size_t{700}, std::size_t{1'047}}) {
            spread_memory memory(r.ctx(), count, each);
            memory.fill_whole(count + each);
            (void)submit(client, memory.ranges());
            expect_digest(client, memory.ranges());
        }
    }
}

TEST_P(ranges, a_request_may_have_max_ranges_ranges) {
    constexpr std::size_t each = 260;
    const std::size_t bytes = max_ranges * each;
    rig r(GetParam(), answer_digest, server_for(bytes));
    auto client = r.connect(client_with(bytes, 1));
    spread_memory memory(r.ctx(), max_ranges, each);
    memory.fill_whole(3);
    for (int round = 0; round < 2; ++round) {
        (void)submit(client, memory.ranges());
        expect_digest(client, memory.ranges());
    }
}

TEST_P(ranges, empty_ranges_are_skipped) {
    rig r(GetParam(), answer_digest);
    auto client = r.connect();
    spread_memory memory(r.ctx(), 30, 400);
    memory.fill_whole(4);
    std::vector<slice> list{slice{}};
    for (const slice& each : memory.ranges()) {
        list.push_back(each);
        list.push_back(each.part(each.size(), 0).value());
        list.push_back(slice{});
    }
    (void)submit(client, list);
    expect_digest(client, list);
    const std::vector<slice> nothing(5);
    for (const std::span<const slice> empty : {std::span<const slice>{}, std::span<const slice>{nothing}}) {
        (void)submit(client, empty);
        expect_digest(client, empty);
    }
}

TEST_P(ranges, ranges_may_repeat_and_come_in_any_order) {
    rig r(GetParam(), answer_digest);
    auto client = r.connect();
    spread_memory memory(r.ctx(), 20, 500);
    spread_memory others(r.ctx(), 20, 300);
    memory.fill_whole(5);
    others.fill_whole(6);
    std::vector<slice> list;
    for (std::size_t i = 0; i < 60; ++i) {
        list.push_back(memory.ranges()[(i * 7) % 20]);
        list.push_back(others.ranges()[(i * 3) % 20]);
    }
    (void)submit(client, list);
    expect_digest(client, list);
}

TEST_P(ranges, ranges_of_more_regions_than_cached_keys_arrive) {
    rig r(GetParam(), answer_digest);
    auto client = r.connect();
    std::vector<region> regions;
    std::vector<slice> list;
    for (std::size_t i = 0; i < 30; ++i) {
        regions.push_back(r.ctx().allocate(600).value());
        fill(regions.back().whole().bytes(), i);
        list.push_back(regions.back().whole());
    }
    list.insert(list.end(), list.begin(), list.begin() + 30);
    (void)submit(client, list);
    expect_digest(client, list);
}

TEST_P(ranges, refuses_unsendable_ranges_before_sending_anything) {
    std::atomic<int> requests{0};
    rig r(GetParam(), [&](exchange one) {
        ++requests;
        answer_digest(std::move(one));
    });
    auto client = r.connect();
    spread_memory memory(r.ctx(), 129, 512);
    memory.fill_whole(7);
    const std::vector<slice>& all = memory.ranges();
    EXPECT_EQ(try_submit(client, all), status::message_too_large) << "512 bytes too many";
    EXPECT_EQ(try_submit(client, std::vector<slice>(max_ranges + 1, all[0].part(0, 1).value())),
              status::invalid_argument);
    EXPECT_EQ(try_submit(client, all, {.timeout = -1s}), status::invalid_argument);
    EXPECT_EQ(try_submit(client, std::vector{all[0], behind(memory.memory(), 512)}), status::invalid_argument);
    EXPECT_EQ(try_submit(client, std::vector{all[0], behind(memory.memory(), ~std::size_t{0})}),
              status::invalid_argument);
    EXPECT_EQ(
        try_submit(client, std::span(all).first(3), {.response_into = slice{}, .response_ranges = all, .parts = 1}),
        status::unsupported);
    EXPECT_EQ(try_submit(client, std::span(all).first(3), {.response_into = all[0], .response_ranges = all}),
              status::invalid_argument);
    (void)submit(client, std::span(all).first(128));
    expect_digest(client, std::span(all).first(128));
    EXPECT_EQ(requests, 1);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(ranges, ranges_of_several_calls_in_flight_arrive) {
    rig r(GetParam(), answer_digest, server_for(1 << 20));
    auto client = r.connect(client_with(1 << 20, 8));
    std::vector<spread_memory> memories;
    for (std::size_t i = 0; i < 8; ++i) memories.emplace_back(r.ctx(), 200 + 37 * i, 300 + 211 * i).fill_whole(i);
    for (int round = 0; round < effort(10); ++round) {
        for (std::size_t i = 0; i < 8; ++i) (void)submit(client, memories[i].ranges(), {.tag = i});
        for (std::size_t i = 0; i < 8; ++i) {
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            EXPECT_TRUE(tells(c.response, joined(memories[c.tag].ranges())));
            EXPECT_EQ(client.release(c.id), status::ok);
        }
    }
}

TEST_P(ranges, ranges_travel_beside_usual_calls) {
    rig r(GetParam(), answer_digest, server_for(4 << 20));
    auto client = r.connect(client_with(4 << 20, 4));
    spread_memory memory(r.ctx(), 10'000, 400);
    memory.fill_whole(8);
    for (int round = 0; round < effort(5); ++round) {
        (void)submit(client, memory.ranges(), {.tag = 100});
        for (std::uint64_t i = 0; i < 3; ++i) client.send_seed(100 + i, i, {.tag = i});
        for (int i = 0; i < 4; ++i) {
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            std::vector<std::byte> sent(100 + c.tag);
            fill(sent, c.tag);
            EXPECT_TRUE(tells(c.response, c.tag == 100 ? joined(memory.ranges()) : sent));
            EXPECT_EQ(client.release(c.id), status::ok);
        }
    }
}

TEST_P(ranges, a_cancel_releases_the_ranges) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), server_for(4 << 20));
    auto client = r.connect(client_with(4 << 20, 2));
    spread_memory memory(r.ctx(), 10'000, 400);
    for (int round = 0; round < 3; ++round) {
        memory.fill_whole(9);
        const call_id id = submit(client, memory.ranges());
        ASSERT_TRUE(round == 0 || arrives(client, held));
        EXPECT_EQ(client.cancel(id), status::ok);
        const completion c = client.next();
        EXPECT_EQ(c.status, status::cancelled);
        EXPECT_EQ(client.release(c.id), status::ok);
        memory.fill_whole(10);  // it is the application's again
        client.send_seed(10, 1);
        ASSERT_TRUE(arrives(client, held));
        exchange next = held.take();
        if (next.request().size() != 10) {
            memory.fill_whole(9);
            EXPECT_EQ(copy_of(next.request()), joined(memory.ranges()));
            echo(std::move(next));
            ASSERT_TRUE(arrives(client, held));
            next = held.take();
        }
        EXPECT_TRUE(matches(next.request(), 1));
        echo(std::move(next));
        EXPECT_EQ(client.finish(status::ok), 1U);
        EXPECT_TRUE(client.slot_comes_back());
    }
}

TEST_P(ranges, an_expired_call_releases_its_ranges) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), server_for(4 << 20));
    auto client = r.connect(client_with(4 << 20, 2));
    spread_memory memory(r.ctx(), 10'000, 400);
    memory.fill_whole(11);
    for (const nanoseconds timeout : {nanoseconds{1us}, patience(nanoseconds{300ms})}) {
        (void)submit(client, memory.ranges(), {.timeout = timeout});
        const completion c = client.next();
        EXPECT_EQ(c.status, status::timed_out);
        EXPECT_EQ(client.release(c.id), status::ok);
    }
    while (held.size() > 0) echo(held.take());
    EXPECT_TRUE(client.slot_comes_back());
}

TEST_P(ranges, close_ends_a_call_with_ranges) {
    held_exchanges held;
    std::optional<rig> r(std::in_place, GetParam(), held.keeper(), server_for(4 << 20));
    auto client = r->connect(client_with(4 << 20, 2));
    spread_memory memory(r->ctx(), 10'000, 400);
    memory.fill_whole(12);
    (void)submit(client, memory.ranges());
    held.clear();
    client->close();
    EXPECT_EQ(client.finish(status::closed), 1U);
}

TEST_P(ranges, a_response_is_scattered_into_ranges) {
    rig r(GetParam());
    auto client = r.connect();
    for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
        const std::size_t each = count == 3 ? 5'000 : 128;  // copied, as is all that is shorter than 256 bytes
        spread_memory from(r.ctx(), count, each);
        spread_memory into(r.ctx(), count, each);
        from.fill_whole(count);
        into.fill_whole(99);
        std::vector<slice> list{slice{}};
        list.insert(list.end(), into.ranges().begin(), into.ranges().end());
        (void)submit(client, from.ranges(), {.response_ranges = list});
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        EXPECT_EQ(c.response.size(), from.bytes());
        EXPECT_EQ(joined(list), joined(from.ranges()));
        EXPECT_EQ(client.release(c.id), status::ok);
    }
}

TEST_P(ranges, a_long_response_is_scattered_into_ranges) {
    rig r(GetParam(), echo, server_for(4 << 20));
    channel_options options = client_with(4 << 20);
    options.response_bytes = 4 << 20;
    auto client = r.connect(options);
    spread_memory from(r.ctx(), 10'000, 400);
    spread_memory into(r.ctx(), 10'000, 400);
    into.fill_whole(20);
    const std::vector<std::byte> before = copy_of(into.memory().whole().bytes());
    from.fill_whole(21);
    (void)submit(client, from.ranges(), {.response_ranges = into.ranges()});
    const completion c = client.next(patience(20s));
    ASSERT_EQ(c.status, status::ok);
    EXPECT_EQ(c.response.size(), from.bytes());
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_EQ(joined(into.ranges()), joined(from.ranges()));
    const std::span<const std::byte> after = into.memory().whole().bytes();
    for (std::size_t gap = 400; gap < after.size(); gap += 800)
        ASSERT_TRUE(std::ranges::equal(after.subspan(gap, 400), std::span(before).subspan(gap, 400))) << gap;
}

/// Some of the response has come by then, where the transport moves it piece by piece.
TEST_P(ranges, a_cancel_in_mid_response_leaves_its_ranges_alone) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), server_for(64 << 10));
    channel_options options = client_with(64 << 10, 1);
    options.response_bytes = 8 << 20;
    auto client = r.connect(options);
    spread_memory into(r.ctx(), 2'000, 4'096);
    for (int round = 0; round < 2; ++round) {
        const call_id id = client.send_seed(10, 1, {.response_ranges = into.ranges()});
        exchange one = held.take();
        fill(one.response(), 22);
        EXPECT_EQ(one.reply(one.response().size()), status::ok);
        completion none;
        if (client.poll({&none, 1}) == 1) {
            EXPECT_EQ(none.status, status::ok);
            EXPECT_EQ(client.release(none.id), status::ok);
            continue;
        }
        EXPECT_EQ(client.cancel(id), status::ok);
        EXPECT_EQ(client.finish(status::cancelled), 1U);
        into.fill_whole(23);
        ASSERT_TRUE(client.slot_comes_back());
        EXPECT_TRUE(matches(into.memory().whole().bytes(), 23));
    }
}

TEST_P(ranges, response_ranges_limit_the_length_of_the_response) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect();
    spread_memory into(r.ctx(), 10, 100);
    into.fill_whole(1);
    const std::vector<std::byte> before = copy_of(into.memory().whole().bytes());
    client.send_seed(2'000, 5, {.response_ranges = into.ranges()});
    exchange one = held.take();
    EXPECT_EQ(one.response().size(), into.bytes());
    EXPECT_EQ(one.reply(150), status::ok);
    completion c = client.next();
    EXPECT_EQ(c.response.size(), 150U);
    EXPECT_EQ(client.release(c.id), status::ok);
    const std::span<const std::byte> untouched = std::span(before).subspan(350);
    EXPECT_TRUE(std::ranges::equal(into.memory().whole().bytes().subspan(350), untouched));
    client.send_seed(10, 5, {.response_ranges = into.ranges()});
    EXPECT_EQ(held.take().fail(status::application_error, 7, "no"), status::ok);
    c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.response.size(), 2U);
    EXPECT_EQ(client.release(c.id), status::ok);
}

/// The next call in its slot wants its response where it always was.
TEST_P(ranges, a_late_response_leaves_the_ranges_of_a_cancelled_call_alone) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(client_with(64 << 10, 1));
    spread_memory into(r.ctx(), 10, 100);
    const call_id id = client.send_seed(1'000, 5, {.response_ranges = into.ranges()});
    exchange late = held.take();
    EXPECT_EQ(client.cancel(id), status::ok);
    EXPECT_EQ(client.finish(status::cancelled), 1U);
    into.fill_whole(6);
    echo(std::move(late));
    ASSERT_TRUE(client.slot_comes_back());
    client.send_seed(900, 7);
    echo(held.take());
    const completion c = client.next();
    EXPECT_TRUE(matches(c.response, 7));
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_TRUE(matches(into.memory().whole().bytes(), 6));
}

ACCEL_INSTANTIATE(ranges, all_backends);

}  // namespace
}  // namespace accel::tests
