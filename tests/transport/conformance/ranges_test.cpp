// SPDX-License-Identifier: Apache-2.0
// Requests gathered from many ranges of memory, and responses scattered into many.
#include "random_plan.hpp"
#include "rig.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
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

/// As no correct program makes it.
[[nodiscard]] slice forged(std::byte* data, std::size_t size, const core::region_state* region) {
    struct layout {
        std::byte* data;
        std::size_t size;
        const core::region_state* region;
    };
    return std::bit_cast<slice>(layout{data, size, region});
}

/// The region's last byte and the bytes after it.
[[nodiscard]] slice behind(const region& memory, std::size_t bytes) {
    const slice whole = memory.whole();
    return forged(whole.data() + whole.size() - 1, bytes, whole.region());
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
        const auto call = client.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(client.submit(call->id, list, options), status::ok);
        return call->id;
    }
    static status try_submit(checked_channel& client, std::span<const slice> list, const submit_options& options = {}) {
        const auto call = client.begin();
        EXPECT_EQ(call.code(), status::ok);
        const status outcome = client.submit(call->id, list, options);
        EXPECT_TRUE(outcome == status::ok || client.release(call->id) == status::ok);
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
    }
};

/// Memory in more regions than a transport knows keys of at once.
class many_regions {
  public:
    explicit many_regions(context& within) {
        for (std::size_t i = 0; i < 30; ++i) {
            regions_.push_back(within.allocate(3'000).value());
            fill(regions_.back().whole().bytes(), i);
        }
    }
    /// Any ranges of them, in any order, some of them empty, some of them twice.
    [[nodiscard]] std::vector<slice> some(drawing& draw) const {
        constexpr std::array<std::size_t, 7> counts{1, 2, 3, 9, 17, 100, 1'000};
        constexpr std::array<std::size_t, 8> lengths{0, 1, 7, 128, 255, 256, 700, 1'047};
        std::vector<slice> out(draw(2));
        const std::size_t usual = lengths.at(draw(lengths.size()));
        for (std::size_t left = counts.at(draw(counts.size())); left > 0; --left) {
            const std::size_t length = draw(4) == 0 ? lengths.at(draw(lengths.size())) : usual;
            const region& from = regions_.at(draw(regions_.size()));
            out.push_back(from.part(draw(from.size() - length + 1), length).value());
            if (draw(8) == 0) out.push_back(out.front());
        }
        return out;
    }

  private:
    std::vector<region> regions_;
};

/// Distinct places of at least so many bytes together, the last one first.
[[nodiscard]] std::vector<slice> places_for(slice memory, std::size_t bytes, drawing& draw) {
    std::vector<slice> out;
    const std::size_t usual = bytes / 2'000 + 1 + draw(draw(2) == 0 ? 100 : 2'000);
    for (std::size_t left = bytes; left > 0;) {
        const std::size_t length = std::min(left, usual);
        left -= length;
        out.push_back(memory.part(2 * left, length).value());
        if (draw(8) == 0) out.emplace_back();
    }
    return out;
}

/// Several calls at once, with lists on one side, on both, or on none.
TEST_P(ranges, any_lists_of_ranges_are_one_request_and_hold_its_response) {
    struct sent {
        call_id id;
        std::vector<std::byte> request;
        std::vector<slice> into;
    };
    constexpr std::size_t most = std::size_t{1} << 21;
    rig r(GetParam(), echo, server_for(most));
    channel_options options = client_with(most, 6);
    options.response_bytes = most;
    auto client = r.connect(options);
    const many_regions from(r.ctx());
    const region answers = r.ctx().allocate(6 * 2 * most).value();
    drawing draw(1);
    std::map<std::uint64_t, sent> open;
    const auto calls = static_cast<std::uint64_t>(effort(200));
    for (std::uint64_t i = 0; i < calls || !open.empty();) {
        if (i < calls && open.size() < 6 && draw(3) != 0) {
            const auto call = client.begin();
            ASSERT_EQ(call.code(), status::ok);
            const std::vector<slice> list = from.some(draw);
            sent& made = open[i] = {call->id, joined(list), {}};
            const slice own = answers.part(call->id.slot * 2 * most, 2 * most).value();
            if (draw(2) == 0) made.into = places_for(own, made.request.size(), draw);
            const submit_options with{.tag = i++, .response_ranges = made.into};
            if (draw(4) != 0) {
                ASSERT_EQ(client.submit(call->id, list, with), status::ok);
            } else {
                copy(call->request, made.request);
                ASSERT_EQ(client.submit(call->id, made.request.size(), with), status::ok);
            }
            continue;
        }
        if (open.empty()) continue;
        const completion c = client.next();
        const auto was = open.extract(c.tag);
        ASSERT_EQ(c.status, status::ok) << to_string(c.status) << " for call " << c.tag;
        ASSERT_EQ(c.response.size(), was.mapped().request.size()) << "call " << c.tag;
        const bool in_slot = was.mapped().into.empty();
        ASSERT_EQ(in_slot ? copy_of(c.response) : joined(was.mapped().into), was.mapped().request) << "call " << c.tag;
    }
    EXPECT_TRUE(client.all_slots_free());
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

TEST_P(ranges, each_refusal_says_what_was_wrong) {
    rig r(GetParam());
    channel_options asked = calm_client();
    asked.slots = 2;
    auto client = r.connect(asked);
    EXPECT_EQ(client->last_error(), "") << "nothing has failed yet";
    spread_memory memory(r.ctx(), 2, 64);
    const std::vector<slice>& good = memory.ranges();
    std::array<std::byte, 8> own{};
    const std::vector foreign{forged(own.data(), own.size(), nullptr)};
    const tensor outside{.type = {type_code::floating, 32, 1}, .rank = 1, .offset = 64, .shape = {8}};
    const std::vector<tensor> many(max_tensors + 1, outside);
    struct row {
        std::vector<slice> ranges;
        submit_options options;
        const char* words;
    };
    const std::vector<row> of_calls{
        {{}, {.timeout = -1ns}, "the timeout is negative"},
        {{}, {.response_into = good[0], .response_ranges = good}, "response_into and response_ranges"},
        {{}, {.response_into = foreign[0]}, "part of a region"},
        {{}, {.response_ranges = foreign}, "part of a region"},
        {{}, {.tensors = {&outside, 1}}, "a tensor is not valid or not within the payload"},
        {{}, {.tensors = many}, "max_tensors"},
    };
    for (const row& each : of_calls) {
        SCOPED_TRACE(each.words);
        const auto failed = client->call({}, each.options);
        ASSERT_EQ(failed.code(), status::invalid_argument);
        EXPECT_NE(client->last_error().find(each.words), std::string_view::npos) << client->last_error();
        EXPECT_TRUE(failed.error().message.ends_with(client->last_error())) << failed.error().message;
    }
    const std::vector<row> of_ranges{
        {std::vector<slice>(max_ranges + 1, good[0]), {}, "max_ranges"},
        {{good[0], behind(memory.memory(), 64)}, {}, "beyond its region"},
        {foreign, {}, "part of a region"},
        {good, {.parts = 2}, "parts must be less than slots()"},
        {good, {.parts = 1, .part_timeout = -1ns}, "part_timeout is negative"},
    };
    for (const row& each : of_ranges) {
        EXPECT_EQ(try_submit(client, each.ranges, each.options), status::invalid_argument) << each.words;
        EXPECT_NE(client->last_error().find(each.words), std::string_view::npos) << client->last_error();
    }
    EXPECT_EQ(client.release({0, 12'345}), status::invalid_state);
    const std::string_view last = client->last_error();
    EXPECT_NE(last.find("stale"), std::string_view::npos) << last;
    EXPECT_TRUE(client->call({}).ok());
    EXPECT_EQ(client->last_error(), last) << "success changes nothing";
    client->close();
    EXPECT_EQ(client->call({}).code(), status::closed);
    EXPECT_NE(client->last_error().find("was closed"), std::string_view::npos) << client->last_error();
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
        completion c = client.next();
        EXPECT_EQ(c.status, status::cancelled);
        c.release();
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

TEST_P(ranges, a_deadline_and_a_close_release_the_ranges) {
    held_exchanges held;
    rig r(GetParam(), held.keeper(), server_for(4 << 20));
    auto client = r.connect(client_with(4 << 20, 2));
    spread_memory memory(r.ctx(), 10'000, 400);
    memory.fill_whole(11);
    for (const nanoseconds timeout : {nanoseconds{1us}, patience(nanoseconds{300ms})}) {
        (void)submit(client, memory.ranges(), {.timeout = timeout});
        EXPECT_EQ(client.finish(status::timed_out), 1U);
    }
    while (held.size() > 0) echo(held.take());
    EXPECT_TRUE(client.slot_comes_back());
    (void)submit(client, memory.ranges());
    client->close();
    EXPECT_EQ(client.finish(status::closed), 1U);
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
    completion c = client.next(patience(20s));
    ASSERT_EQ(c.status, status::ok);
    EXPECT_EQ(c.response.size(), from.bytes());
    c.release();
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
            none.release();
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
    c.release();
    const std::span<const std::byte> untouched = std::span(before).subspan(350);
    EXPECT_TRUE(std::ranges::equal(into.memory().whole().bytes().subspan(350), untouched));
    client.send_seed(10, 5, {.response_ranges = into.ranges()});
    EXPECT_EQ(held.take().fail(status::application_error, 7, "no"), status::ok);
    c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(c.response.size(), 2U);
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
    completion c = client.next();
    EXPECT_TRUE(matches(c.response, 7));
    c.release();
    EXPECT_TRUE(matches(into.memory().whole().bytes(), 6));
}

ACCEL_INSTANTIATE(ranges, all_backends);

}  // namespace
}  // namespace accel::tests
