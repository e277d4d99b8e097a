// SPDX-License-Identifier: Apache-2.0
// Keys and values that travel with requests and with their answers.
#include "rig.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace accel::tests {
namespace {

using pairs = std::map<std::string, std::string>;

/// What a reader got.
struct metadata_reading {
    status outcome = status::again;
    pairs seen;
};
template <class From>
metadata_reading read_metadata(const From& from) {
    metadata_room room;
    const auto got = from.metadata(room);
    metadata_reading out{got.code(), {}};
    if (got)
        for (const metadata_entry& each : *got) out.seen.emplace(each.key, each.value);
    return out;
}

std::vector<metadata_entry> view_of(const pairs& all) {
    std::vector<metadata_entry> out;
    for (const auto& [key, value] : all) out.push_back({key, value});
    return out;
}

/// With so many bytes that they fit beside the header up to 100, and never from 1,000 on.
pairs sample(std::size_t bytes, std::uint64_t seed) {
    return {{"request-id", std::to_string(seed)}, {"token-bin", std::string(bytes, static_cast<char>(seed))}};
}

struct with_metadata : on_every_backend {
    /// The handler notes what it reads, and echoes request and metadata; from lent memory if there is any.
    rig echoing() {
        return rig(GetParam(), [this](exchange one) {
            const std::lock_guard held(guard_);
            on_host_ = one.memory() == memory_kind::host();
            heard_ = read_metadata(one);
            length_ = one.request().size();
            const bool same = matches(one.request(), one.trace_id());
            const std::vector<metadata_entry> back = view_of(heard_.seen);
            const slice from = lent_.size() == 0 ? slice{} : lent_.part(0, length_).value();
            copy(from.empty() ? one.response() : from.bytes(), one.request());
            const auto answer = [&](std::span<const metadata_entry> list) {
                return from.empty() ? one.reply(length_, list) : one.reply(from, leases_, list);
            };
            EXPECT_TRUE(same);
            refused_ = answer(back);
            if (refused_ == status::unsupported) {
                EXPECT_FALSE(on_host_);
                EXPECT_EQ(answer({}), status::ok);
            }
        });
    }
    void answer_from(region memory) {
        const std::lock_guard held(guard_);
        lent_ = std::move(memory);
    }
    [[nodiscard]] bool on_host() {
        const std::lock_guard held(guard_);
        return on_host_;
    }
    /// The handler, and then the client, have got all of it. Metadata that follows the payload may be out of reach for
    /// an end that has its bytes on a GPU.
    void expect_both_read(const completion& c, const pairs& sent, std::uint64_t seed, std::size_t length) {
        ASSERT_EQ(c.status, status::ok) << to_string(c.status);
        const std::lock_guard held(guard_);
        EXPECT_EQ(length_, length) << "metadata is not part of the request";
        const bool out_of_reach = !on_host_ && heard_.outcome == status::unsupported;
        if (!out_of_reach) {
            EXPECT_EQ(heard_.outcome, sent.empty() ? status::not_found : status::ok) << to_string(heard_.outcome);
            EXPECT_EQ(heard_.seen, sent);
        }
        EXPECT_EQ(c.response.size(), length) << "nor of the response";
        EXPECT_TRUE(matches(c.response, seed));
        const metadata_reading back = read_metadata(c);
        const bool none = sent.empty() || out_of_reach || refused_ == status::unsupported;
        EXPECT_EQ(back.outcome, none ? status::not_found : status::ok) << to_string(back.outcome);
        EXPECT_EQ(back.seen, none ? pairs{} : sent);
    }
    [[nodiscard]] bool leases_ended() {
        return eventually([&] { return leases_.load() == 0; });
    }

  private:
    std::mutex guard_;
    region lent_;
    std::atomic<std::uint32_t> leases_{0};
    metadata_reading heard_;
    std::size_t length_ = 0;
    status refused_ = status::ok;
    bool on_host_ = true;
};

/// In place and in lent memory, in one piece and in ranges, short and long, and after other metadata in the same slot.
TEST_P(with_metadata, metadata_travels_with_its_message_and_no_other) {
    rig r = echoing();
    auto memory = r.ctx().allocate(64 << 10);
    ASSERT_TRUE(memory.ok());
    channel_options few = calm_client();
    few.slots = 2;
    auto client = r.connect(few);
    for (std::uint64_t i = 1; i <= 120; ++i) {
        SCOPED_TRACE(i);
        if (i == 60) answer_from(r.ctx().allocate(64 << 10).value());
        constexpr std::array<std::size_t, 5> sizes{0, 100, 1'000, 3'900, 40};
        const std::size_t size = sizes.at(i % sizes.size());
        const pairs sent = i % 4 == 3 ? pairs{} : sample(size, i);
        const std::vector<metadata_entry> list = view_of(sent);
        submit_options options{.trace_id = i, .metadata = list};
        if (mix(i) % 3 == 0) options.response_into = memory->part(32 << 10, 30'000).value();
        if (mix(i) % 3 == 1) options.parts = 1;
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        const std::size_t length = mix(i) / 4 % 20'000;
        const slice payload = memory->part(0, length).value();
        const std::uint64_t way = mix(i) / 2 % 3;
        fill(way == 0 ? call->request.first(length) : payload.bytes(), i);
        const std::array ranges{memory->part(0, length / 2).value(),
                                memory->part(length / 2, length - length / 2).value()};
        const auto submit = [&] {
            if (way == 0) return client.submit(call->id, length, options);
            return way == 1 ? client.submit(call->id, payload, options) : client.submit(call->id, ranges, options);
        };
        // Room for a part of the last call may still be on its way back.
        status sent_as = status::again;
        ASSERT_TRUE(eventually(until_hung(), [&] { return (sent_as = submit()) != status::again; }));
        ASSERT_EQ(sent_as, status::ok) << client->last_error();
        const completion c = client.next();
        expect_both_read(c, sent, i, length);
        if (options.response_into.size() > 0 && length > 0) {
            EXPECT_EQ(c.response.data(), options.response_into.data());
        }
    }
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_TRUE(leases_ended());
}

TEST_P(with_metadata, metadata_travels_beside_tensors_trace_and_baggage) {
    const trace_context trace = *trace_context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    std::vector<tensor> list(2);
    for (tensor& each : list) each = {{}, 2, 0, {1, 1}};
    std::atomic<int> all_there{0};
    rig r(GetParam(), [&](exchange one) {
        std::array<tensor, 8> tensors;
        std::array<char, max_baggage_bytes> baggage;
        const bool others = one.tensors(tensors).ok() && one.trace().ok() && one.baggage(baggage).ok();
        const metadata_reading got = read_metadata(one);
        const pairs sent = sample(got.seen.at("token-bin").size(), 5);
        if (others && got.seen == sent) ++all_there;
        EXPECT_EQ(one.describe(100, list), status::ok);
        const std::vector<metadata_entry> back = view_of(sent);
        if (one.reply(100, back) == status::unsupported) (void)one.reply(std::size_t{100});
    });
    auto client = r.connect();
    for (const std::size_t size : {std::size_t{3}, std::size_t{3'000}}) {
        const pairs sent = sample(size, 5);
        const std::vector<metadata_entry> entries = view_of(sent);
        client.send_seed(100, 1, {.trace = trace, .baggage = "a=1", .metadata = entries, .tensors = list});
        const completion c = client.next();
        if (c.status != status::ok && handlers_on_gpu()) continue;  // it could not read the long ones
        ASSERT_EQ(c.status, status::ok) << to_string(c.status);
        std::array<tensor, 8> tensors;
        EXPECT_TRUE(c.tensors(tensors).ok());
        if (!handlers_on_gpu()) {
            EXPECT_EQ(read_metadata(c).seen, sent);
        }
    }
    EXPECT_GE(all_there.load(), handlers_on_gpu() ? 1 : 2);
}

TEST_P(with_metadata, wrong_metadata_sends_nothing) {
    rig r = echoing();
    auto client = r.connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    fill(call->request.first(10), 1);
    const auto refusal = [&](const std::vector<metadata_entry>& list, std::size_t length = 10) {
        return client.submit(call->id, length, {.trace_id = 1, .metadata = list});
    };
    EXPECT_EQ(refusal({{"Key", "v"}}), status::invalid_argument);
    EXPECT_NE(client->last_error().find("metadata"), std::string_view::npos) << client->last_error();
    EXPECT_EQ(refusal({{"key", "\n"}}), status::invalid_argument);
    EXPECT_EQ(refusal({{"key", "1"}, {"key", "2"}}), status::invalid_argument);
    const std::string value(max_metadata_bytes, 'v');
    EXPECT_EQ(refusal({{"key", value}}), status::invalid_argument);
    const std::size_t most = client->max_request_bytes();
    EXPECT_EQ(refusal({{"key", std::string_view{value}.substr(500)}}, most - 3'000), status::message_too_large);
    EXPECT_NE(client->last_error().find("max_request_bytes"), std::string_view::npos) << client->last_error();
    EXPECT_EQ(refusal({}), status::ok) << "the call is still there";
    completion c = client.next();
    expect_both_read(c, {}, 1, 10);
    c.release();
    EXPECT_EQ(read_metadata(c).outcome, status::invalid_state) << "after its release";
}

TEST_P(with_metadata, a_refused_call_keeps_the_bytes_of_its_request) {
    rig r = echoing();
    auto client = r.connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    fill(call->request.first(2'000), 1);
    const pairs sent = sample(1'000, 1);
    const std::vector<metadata_entry> list = view_of(sent);
    const std::vector<slice> too_many(max_ranges + 1);
    EXPECT_EQ(client.submit(call->id, 10, {.metadata = list, .response_ranges = too_many}), status::invalid_argument);
    ASSERT_EQ(client.submit(call->id, 2'000, {.trace_id = 1, .metadata = list}), status::ok);
    expect_both_read(client.next(), sent, 1, 2'000);
}

TEST_P(with_metadata, an_answer_with_wrong_metadata_is_not_sent) {
    const std::string value(1'000, 'v');
    rig r(GetParam(), [&](exchange one) {
        const std::size_t room = one.response().size();
        const std::array upper{metadata_entry{"Key", "v"}};
        const std::array twice{metadata_entry{"key", "v"}, metadata_entry{"key", "v"}};
        const std::array large{metadata_entry{"key", value}};
        const std::array small{metadata_entry{"key", "v"}};
        std::atomic<std::uint32_t> leases{0};
        EXPECT_EQ(one.reply(1, upper), status::invalid_argument);
        EXPECT_EQ(one.reply(1, twice), status::invalid_argument);
        EXPECT_EQ(one.reply(room + 1, small), status::message_too_large);
        EXPECT_NE(one.reply(room - value.size(), large), status::ok) << "no room after the payload";
        EXPECT_EQ(one.reply(slice{}, leases, small), status::invalid_argument) << "not part of a region";
        (void)one.reply(std::size_t{1});
    });
    auto client = r.connect();
    client.send_seed(1, 1);
    const completion c = client.next();
    ASSERT_EQ(c.status, status::ok);
    EXPECT_EQ(c.response.size(), 1U);
    EXPECT_EQ(read_metadata(c).outcome, status::not_found) << "refused metadata does not travel";
}

TEST_P(with_metadata, a_failure_carries_none) {
    rig r(GetParam(), [](exchange one) { (void)one.fail(status::application_error, 1, "no"); });
    auto client = r.connect();
    const std::array one{metadata_entry{"key", "v"}};
    client.send_seed(1, 1, {.metadata = one});
    const completion c = client.next();
    EXPECT_EQ(c.status, status::application_error);
    EXPECT_EQ(read_metadata(c).outcome, status::invalid_state);
}

TEST_P(with_metadata, metadata_arrives_where_responses_are_scattered_if_it_fits_beside_the_header) {
    rig r = echoing();
    auto memory = r.ctx().allocate(16 << 10);
    ASSERT_TRUE(memory.ok());
    auto client = r.connect();
    const std::array ranges{memory->part(0, 4'000).value(), memory->part(8'000, 4'000).value()};
    for (const std::size_t size : {std::size_t{50}, std::size_t{2'000}}) {
        const pairs sent = sample(size, 3);
        const std::vector<metadata_entry> list = view_of(sent);
        client.send_seed(3'000, 3, {.metadata = list, .response_ranges = ranges});
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok);
        EXPECT_EQ(c.response.size(), 3'000U);
        EXPECT_TRUE(matches(ranges[0].bytes().first(3'000), 3));
        const metadata_reading back = read_metadata(c);
        if (size < 100) {
            EXPECT_EQ(back.seen, sent);
        } else {
            EXPECT_NE(back.outcome, status::ok);
        }
    }
}

ACCEL_INSTANTIATE(with_metadata, all_backends);

}  // namespace
}  // namespace accel::tests
