// SPDX-License-Identifier: Apache-2.0
// Slots are credits: what begin, submit and release say in each state, and the order of answers.
#include "rig.hpp"

#include <set>
#include <vector>

namespace accel::tests {
namespace {

class slots : public on_every_backend {};

channel_options with_slots(std::uint32_t count) {
    channel_options options = calm_client();
    options.slots = count;
    options.request_bytes = options.response_bytes = 4096;
    return options;
}

TEST_P(slots, begin_says_again_when_all_are_taken) {
    rig r(GetParam());
    auto client = r.connect(with_slots(5));
    std::set<call_id> taken;
    call_view call;
    for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(client.begin(call), status::ok);
        EXPECT_TRUE(taken.insert(call.id).second);
    }
    EXPECT_EQ(client.begin(call), status::again);
    const call_id given_back = *taken.begin();
    EXPECT_EQ(client.release(given_back), status::ok);
    ASSERT_EQ(client.begin(call), status::ok);
    EXPECT_NE(call.id, given_back) << "the same slot has to come under another generation";
    for (const call_id id : taken)
        if (id != given_back) {
            EXPECT_EQ(client.release(id), status::ok);
        }
    EXPECT_EQ(client.release(call.id), status::ok);
}

TEST_P(slots, a_completed_call_keeps_its_slot_until_release) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(with_slots(4));
    for (std::uint64_t i = 0; i < 4; ++i) client.send_seed(100, i);
    call_view call;
    EXPECT_EQ(client.begin(call), status::again);
    ASSERT_TRUE(held.wait_for(4));
    for (int i = 0; i < 4; ++i) echo(held.take());
    std::vector<completion> done;
    for (int i = 0; i < 4; ++i) done.push_back(client.next());
    EXPECT_EQ(client.begin(call), status::again);
    for (const completion& c : done) {
        EXPECT_EQ(c.status, status::ok);
        EXPECT_TRUE(matches(c.response, c.trace_id));
        EXPECT_EQ(client.release(c.id), status::ok);
        ASSERT_EQ(client.begin(call), status::ok);
        EXPECT_EQ(client.release(call.id), status::ok);
    }
}

TEST_P(slots, wrong_handles_are_invalid_state) {
    held_exchanges held;
    rig r(GetParam(), held.keeper());
    auto client = r.connect(with_slots(2));
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    const call_id stale{call.id.slot, call.id.generation - 1};
    const call_id foreign{2, call.id.generation};
    const call_id far{~0U, ~0U};
    for (const call_id id : {stale, foreign, far}) {
        EXPECT_EQ(client.submit(id, 1), status::invalid_state);
        EXPECT_EQ(client.cancel(id), status::invalid_state);
        EXPECT_EQ(client.release(id), status::invalid_state);
    }
    EXPECT_EQ(client.cancel(call.id), status::invalid_state) << "nothing was submitted yet";
    ASSERT_EQ(client.submit(call.id, 1), status::ok);
    EXPECT_EQ(client->submit(call.id, 1), status::invalid_state) << "already submitted";
    EXPECT_EQ(client.release(call.id), status::invalid_state) << "in flight";
    echo(held.take());
    const completion c = client.next();
    EXPECT_EQ(client->submit(call.id, 1), status::invalid_state) << "already completed";
    EXPECT_EQ(client.cancel(call.id), status::invalid_state) << "already completed";
    EXPECT_EQ(client.release(c.id), status::ok);
    EXPECT_EQ(client.release(c.id), status::invalid_state) << "already released";
    EXPECT_TRUE(client.all_slots_free());
}

TEST_P(slots, a_slice_of_no_region_is_refused) {
    rig r(GetParam());
    auto client = r.connect(with_slots(2));
    call_view call;
    ASSERT_EQ(client.begin(call), status::ok);
    EXPECT_EQ(client.submit(call.id, slice{}), status::invalid_argument);
    EXPECT_EQ(client.submit(call.id, 1, {.timeout = -1ns}), status::invalid_argument);
    ASSERT_EQ(client.submit(call.id, 1), status::ok) << "the call stays begun";
    EXPECT_EQ(client.finish(status::ok), 1U);
}

TEST_P(slots, requests_reach_one_worker_in_order_of_submission) {
    std::vector<std::uint64_t> seen;
    rig r(GetParam(), [&](exchange one) {
        seen.push_back(one.trace_id());
        echo(std::move(one));
    });
    auto client = r.connect(with_slots(16));
    const auto rounds = static_cast<std::uint64_t>(effort(200));
    std::uint64_t next_sent = 0;
    std::uint64_t next_done = 0;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        for (int i = 0; i < 16; ++i, ++next_sent)
            client.send_seed(mix(next_sent) % 4096, next_sent, {.tag = next_sent});
        for (int i = 0; i < 16; ++i, ++next_done) {
            const completion c = client.next();
            ASSERT_EQ(c.status, status::ok);
            EXPECT_TRUE(c.tag == next_done || handlers_on_gpu()) << "answers given in order have to complete in order";
            ASSERT_EQ(client.release(c.id), status::ok);
        }
    }
    r.served().stop();
    ASSERT_EQ(seen.size(), rounds * 16);
    for (std::uint64_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i);
}

TEST_P(slots, a_channel_works_with_one_slot_and_with_256_slots) {
    rig r(GetParam());
    auto narrow = r.connect(with_slots(1));
    for (std::uint64_t i = 0; i < 50; ++i) {
        narrow.send_seed(10, i);
        EXPECT_EQ(narrow.finish(status::ok), 1U);
    }
    channel_options options = with_slots(256);
    options.request_bytes = options.response_bytes = 64;
    auto wide = r.connect(options);
    ASSERT_EQ(wide->slots(), 256U);
    for (std::uint64_t i = 0; i < 256; ++i) wide.send_seed(64, i);
    EXPECT_EQ(wide.finish(status::ok), 256U);
    EXPECT_TRUE(wide.all_slots_free());
}

ACCEL_INSTANTIATE(slots, all_backends);

}  // namespace
}  // namespace accel::tests
