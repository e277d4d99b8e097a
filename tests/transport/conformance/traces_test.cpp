// SPDX-License-Identifier: Apache-2.0
// The trace of a call beside what else its header may have. (random_test.cpp has all other calls.)
#include "rig.hpp"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace accel::tests {
namespace {

const trace_context example = *trace_context::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");

trace_context numbered(std::uint8_t number) {
    trace_context made = example;
    made.trace_id[0] = made.parent_id[7] = number;
    return made;
}

struct tracing : on_every_backend {
    /// Notes what it sees, and echoes.
    handler noting() {
        return [this](exchange one) {
            {
                const std::lock_guard held(guard_);
                const auto trace = one.trace();
                found_ = trace.code();
                seen_ = trace ? *trace : trace_context{};
            }
            echo(std::move(one));
        };
    }
    status found() {
        const std::lock_guard held(guard_);
        return found_;
    }
    trace_context seen() {
        const std::lock_guard held(guard_);
        return seen_;
    }

  private:
    std::mutex guard_;
    status found_ = status::again;
    trace_context seen_;
};

/// Each part has its call's trace until its own release, also when the call has been released and its slot used again.
TEST_P(tracing, parts_have_the_trace_of_their_call) {
    rig r(GetParam(), [](exchange one) {
        const auto seen = one.trace();
        EXPECT_EQ(seen.code(), one.in_parts() ? status::ok : status::not_found);
        if (one.in_parts()) {
            EXPECT_EQ(*seen, numbered(9));
            EXPECT_FALSE(one.part().empty());
            EXPECT_EQ(one.send(10), status::ok);
        }
        (void)one.reply(std::size_t{0});
    });
    channel_options two_slots = calm_client();
    two_slots.slots = 2;
    auto client = r.connect(two_slots);
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(client.submit(call->id, 10, {.trace = numbered(9), .parts = 1}), status::ok);
    const completion part = client.next();
    ASSERT_TRUE(part.more);
    completion last = client.next();
    ASSERT_FALSE(last.more);
    ASSERT_NE(last.trace, nullptr);
    EXPECT_EQ(*last.trace, numbered(9));
    last.release();
    client.send_seed(10, 1);
    completion plain = client.next();
    ASSERT_NE(part.trace, nullptr);
    EXPECT_EQ(*part.trace, numbered(9));
    EXPECT_EQ(plain.trace, nullptr);
    plain.release();
}

TEST_P(tracing, traces_travel_with_tensors_and_places_for_responses) {
    std::vector<tensor> list(4);
    for (tensor& each : list) each = {{}, 6, 0, {1, 1, 1, 1, 1, 1}};
    std::atomic<std::size_t> described{0};
    rig r(GetParam(), [&, note = noting()](exchange one) {
        std::array<tensor, 8> read;
        const auto found = one.tensors(read);
        described = found ? found->size() : 0;
        note(std::move(one));
    });
    auto memory = r.ctx().allocate(4096);
    ASSERT_TRUE(memory.ok());
    auto client = r.connect();
    client.send_seed(1000, 3, {.trace = example, .tensors = list});
    completion c = client.next();
    ASSERT_EQ(c.status, status::ok);
    EXPECT_EQ(described.load(), 4U);
    EXPECT_EQ(found(), status::ok);
    EXPECT_EQ(seen(), example);
    c.release();

    client.send_seed(1000, 4, {.trace = example, .response_into = memory->whole()});
    c = client.next();
    ASSERT_EQ(c.status, status::ok);
    EXPECT_TRUE(matches(c.response, 4));
    EXPECT_EQ(c.response.data(), memory->data());
    EXPECT_EQ(seen(), example);
    c.release();

    // All three do not fit: the call goes without its trace.
    client.send_seed(1000, 5, {.trace = example, .response_into = memory->whole(), .tensors = list});
    c = client.next();
    ASSERT_EQ(c.status, status::ok);
    EXPECT_TRUE(matches(c.response, 5));
    EXPECT_EQ(found(), status::not_found);
    ASSERT_NE(c.trace, nullptr) << "the client still has it";
}

ACCEL_INSTANTIATE(tracing, all_backends);

}  // namespace
}  // namespace accel::tests
