// SPDX-License-Identifier: Apache-2.0
// Payloads that are too long, and very long ones. (random_test.cpp has all other lengths, by every way.)
#include "rig.hpp"

#include <atomic>

namespace accel::tests {
namespace {

class sizes : public on_every_backend {};

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

TEST_P(sizes, refuses_one_byte_too_many_before_sending_anything) {
    seeded_echo other_end;
    rig r(GetParam(), other_end.service());
    auto client = r.connect();
    const std::size_t max = client->max_request_bytes();
    auto memory = r.ctx().allocate(max + 1);
    ASSERT_TRUE(memory);
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    EXPECT_EQ(call->request.size(), max);
    EXPECT_EQ(client.submit(call->id, max + 1), status::message_too_large);
    EXPECT_EQ(client.submit(call->id, memory->whole()), status::message_too_large);
    EXPECT_EQ(client.submit(call->id, ~std::size_t{0}), status::message_too_large);
    const auto blocking = client->call(std::vector<std::byte>(max + 1));
    EXPECT_EQ(blocking.code(), status::message_too_large);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(other_end.requests, 0U);
    // Still begun, still good.
    fill(call->request, 9);
    ASSERT_EQ(client.submit(call->id, max, {.trace_id = 9}), status::ok);
    EXPECT_EQ(client.finish(status::ok), 1U);
    EXPECT_TRUE(client.all_slots_free());
    EXPECT_EQ(other_end.requests, 1U);
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
    }
    EXPECT_EQ(other_end.wrong, 0U);
    EXPECT_EQ(other_end.unaligned, 0U);
}

ACCEL_INSTANTIATE(sizes, all_backends);

}  // namespace
}  // namespace accel::tests
