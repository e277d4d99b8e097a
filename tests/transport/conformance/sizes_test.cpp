// SPDX-License-Identifier: Apache-2.0
// Payload lengths: 0, 1, odd, the maximum and one more, by every way a payload can leave and arrive.
#include "rig.hpp"

#include <atomic>

namespace accel::tests {
namespace {

class sizes : public on_every_backend {};

std::vector<std::size_t> lengths(std::size_t max) {
    return {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 191, 1001, 4095, 4096, 4097, 16383, 65519, max - 1, max};
}

struct seeded_echo {
    std::atomic<unsigned> requests{0};
    std::atomic<unsigned> wrong{0};
    std::atomic<unsigned> unaligned{0};
    handler service() {
        return [this](exchange one) {
            ++requests;
            if (!matches(one.request(), one.trace_id())) ++wrong;
            if (reinterpret_cast<std::uintptr_t>(one.request().data()) % 8 != 0) ++unaligned;
            echo(std::move(one));
        };
    }
};

TEST_P(sizes, payloads_of_all_lengths_travel_in_slots) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    auto client = r.connect();
    for (const std::size_t length : lengths(client->max_request_bytes())) {
        client.send_seed(length, length + 1);
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok) << length;
        ASSERT_EQ(c.response.size(), length);
        ASSERT_TRUE(matches(c.response, length + 1)) << length;
        ASSERT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_EQ(other_end.unaligned, 0U);
}

TEST_P(sizes, lent_payloads_and_response_targets_take_all_lengths) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    auto client = r.connect();
    const std::size_t max = client->max_request_bytes();
    auto memory = r.ctx().allocate(2 * max + 256);
    ASSERT_TRUE(memory);
    for (const std::size_t length : lengths(max)) {
        const slice payload = memory->part(3, length).value();  // odd on purpose: any slice will do
        const slice target = memory->part(max + 129, length).value();
        const std::byte guard{0x5a};
        memory->data()[max + 128] = memory->data()[max + 129 + length] = guard;
        fill(payload.bytes(), length + 7);
        call_view call;
        ASSERT_EQ(client.begin(call), status::ok);
        ASSERT_EQ(client.submit(call.id, payload, {.trace_id = length + 7, .response_into = target}), status::ok);
        const completion c = client.next();
        ASSERT_EQ(c.status, status::ok) << length;
        ASSERT_EQ(c.response.size(), length);
        if (length > 0) {
            ASSERT_EQ(c.response.data(), target.data());
        }
        ASSERT_TRUE(matches(target.bytes(), length + 7)) << length;
        EXPECT_EQ(memory->data()[max + 128], guard);
        EXPECT_EQ(memory->data()[max + 129 + length], guard);
        ASSERT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_EQ(other_end.wrong, 0U);
    if (GetParam().network) {
        EXPECT_EQ(other_end.unaligned, 0U);  // in one process a request lies where the client put it
    }
}

TEST_P(sizes, refuses_one_byte_too_many_before_sending_anything) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    auto client = r.connect();
    const std::size_t max = client->max_request_bytes();
    auto memory = r.ctx().allocate(max + 1);
    ASSERT_TRUE(memory);
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    EXPECT_EQ(call.request.size(), max);
    EXPECT_EQ(client.submit(call.id, max + 1), status::message_too_large);
    EXPECT_EQ(client.submit(call.id, memory->whole()), status::message_too_large);
    EXPECT_EQ(client.submit(call.id, ~std::size_t{0}), status::message_too_large);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(other_end.requests, 0U);
    // Still begun, still good.
    fill(call.request, 9);
    ASSERT_EQ(client.submit(call.id, max, {.trace_id = 9}), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(other_end.requests, 1U);
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_EQ(other_end.unaligned, 0U);
}

TEST_P(sizes, blocking_call_refuses_more_than_the_maximum) {
    rig r(GetParam());
    auto client = r.connect();
    const std::vector<std::byte> request(client->max_request_bytes() + 1);
    const auto answer = client->call(request);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.code(), status::message_too_large);
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(sizes, odd_limits_are_kept_to_the_byte) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    channel_options options = calm_client();
    options.request_bytes = 1001;
    options.response_bytes = 1001;
    options.slots = 3;
    auto client = r.connect(options);
    ASSERT_EQ(client->max_request_bytes(), 1001U);
    ASSERT_EQ(client->max_response_bytes(), 1001U);
    ASSERT_EQ(client->slots(), 3U);
    for (int round = 0; round < 9; ++round) {
        client.send_seed(1001, 5);
        EXPECT_EQ(client.finish(status::ok), 1U);
    }
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_EQ(other_end.unaligned, 0U);
}

TEST_P(sizes, large_messages_arrive_whole) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    channel_options options = calm_client();
    options.request_bytes = options.response_bytes = 16U << 20;
    options.slots = 2;
    auto client = r.connect(options);
    for (const std::size_t length : {std::size_t{1} << 20, (std::size_t{4} << 20) + 1, std::size_t{16} << 20}) {
        client.send_seed(length, length);
        const completion c = client.next(patience(30s));
        ASSERT_EQ(c.status, status::ok);
        ASSERT_EQ(c.response.size(), length);
        ASSERT_TRUE(matches(c.response, length));
        ASSERT_EQ(client.release(c.id), status::ok);
    }
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_EQ(other_end.unaligned, 0U);
}

TEST_P(sizes, room_for_the_response_is_what_the_client_accepts) {
    std::atomic<std::size_t> room{0};
    rig r(GetParam(), [&](exchange one) {
        room = one.response().size();
        EXPECT_EQ(one.reply(one.response().size() + 1), status::message_too_large);
        put(one.response(), std::vector<std::byte>(one.response().size(), std::byte{1}));
        EXPECT_EQ(one.reply(one.response().size()), status::ok);
    });
    channel_options options = calm_client();
    options.response_bytes = 5000;
    auto client = r.connect(options);
    client.send({});
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(room, 5000U);
    auto memory = r.ctx().allocate(100);
    ASSERT_TRUE(memory);
    client.send({}, {.response_into = memory->whole()});
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_EQ(room, 100U);
}

ACCEL_INSTANTIATE(sizes, all_backends);

}  // namespace
}  // namespace accel::tests
