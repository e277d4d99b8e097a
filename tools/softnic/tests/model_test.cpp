// SPDX-License-Identifier: Apache-2.0
#include "dma/guarded.hpp"
#include "rig.hpp"

#include <array>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::rig;
using testing::seen_completion;
using testing::test_cq;

// ---- regions

struct regions : ::testing::Test {
    region_table table;
    std::array<std::byte, 100> memory{};
    std::uint64_t base = reinterpret_cast<std::uint64_t>(memory.data());

    memory_region& add(std::uint32_t access, std::uint32_t pd = 1) {
        return table.add({0, pd, 0x5000, 100, base, access, false, host_dma()});
    }
    access_check check(std::uint32_t key, std::uint64_t at, std::uint64_t size, std::uint32_t needed,
                       std::uint32_t pd = 1) {
        return table.check(key, {.pd = pd}, at, size, needed).status;
    }
};

TEST_F(regions, bounds_are_exact) {
    const std::uint32_t key = add(0xf).key;
    EXPECT_EQ(check(key, 0x5000, 100, 0), access_check::ok);
    EXPECT_EQ(check(key, 0x5000, 101, 0), access_check::out_of_bounds);
    EXPECT_EQ(check(key, 0x4fff, 1, 0), access_check::out_of_bounds);
    EXPECT_EQ(check(key, 0x5064, 0, 0), access_check::ok);
    EXPECT_EQ(check(key, 0x5064, 1, 0), access_check::out_of_bounds);
    EXPECT_EQ(check(key, 0x5001, ~0ull, 0), access_check::out_of_bounds) << "overflow";
    EXPECT_EQ(check(key, ~0ull, 2, 0), access_check::out_of_bounds) << "overflow";
}

TEST_F(regions, accesses_need_the_right_and_the_domain) {
    const std::uint32_t key = add(access::local_write | access::remote_read).key;
    EXPECT_EQ(check(key, 0x5000, 1, access::remote_read), access_check::ok);
    EXPECT_EQ(check(key, 0x5000, 1, access::remote_write), access_check::denied);
    EXPECT_EQ(check(key, 0x5000, 1, access::remote_atomic), access_check::denied);
    EXPECT_EQ(check(key, 0x5000, 1, 0, 2), access_check::wrong_domain);
}

TEST_F(regions, stale_keys_stay_stale) {
    const std::uint32_t key = add(0xf).key;
    EXPECT_TRUE(table.remove(key));
    EXPECT_FALSE(table.remove(key));
    for (int count = 0; count < 500; ++count) {
        const std::uint32_t next = add(0xf).key;
        ASSERT_NE(next, key);
        ASSERT_NE(next, static_cast<std::uint32_t>(MLX5_INVALID_LKEY));
        ASSERT_EQ(check(key, 0x5000, 1, 0), access_check::bad_key);
        table.remove(next);
    }
}

TEST_F(regions, invalidation_ends_remote_access_only) {
    memory_region& region = add(0xf);
    region.invalidated = true;
    EXPECT_EQ(check(region.key, 0x5000, 1, access::remote_write), access_check::bad_key);
    EXPECT_EQ(check(region.key, 0x5000, 1, access::local_write), access_check::ok);
}

// ---- state machine

TEST(transitions, transitions_need_exactly_the_right_attributes) {
    constexpr auto rc = qp_type::reliable_connection;
    constexpr std::uint32_t init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    EXPECT_TRUE(transition_allowed(rc, qp_state::reset, qp_state::initialised, init));
    EXPECT_FALSE(transition_allowed(rc, qp_state::reset, qp_state::initialised,
                                    init & ~static_cast<std::uint32_t>(IBV_QP_PORT)));
    EXPECT_FALSE(transition_allowed(rc, qp_state::reset, qp_state::initialised, init | IBV_QP_QKEY));
    EXPECT_FALSE(transition_allowed(rc, qp_state::reset, qp_state::ready_to_send, init));
    EXPECT_FALSE(transition_allowed(rc, qp_state::error, qp_state::initialised, init)) << "only through RESET";
    EXPECT_FALSE(transition_allowed(rc, qp_state::ready_to_send, qp_state::ready_to_receive, IBV_QP_STATE));
    for (int from = 0; from <= static_cast<int>(qp_state::error); ++from) {
        const auto state = static_cast<qp_state>(from);
        EXPECT_EQ(transition_allowed(rc, state, qp_state::error, IBV_QP_STATE), state != qp_state::reset)
            << "the kernel refuses this one";
        EXPECT_TRUE(transition_allowed(rc, state, qp_state::reset, IBV_QP_STATE));
    }
    EXPECT_TRUE(transition_allowed(qp_type::datagram, qp_state::initialised, qp_state::ready_to_receive, IBV_QP_STATE));
    EXPECT_FALSE(transition_allowed(rc, qp_state::initialised, qp_state::ready_to_receive, IBV_QP_STATE));
}

TEST(transitions, values_out_of_range_are_refused_and_change_nothing) {
    rig on;
    test_cq cq(on.adapter);
    testing::test_qp qp(on.adapter, cq, cq, 1);
    qp_modification change;
    change.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    change.next = qp_state::initialised;
    change.values.port = 2;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL);
    change.values.port = 1;
    change.values.pkey_index = 9999;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), EINVAL);
    EXPECT_EQ(qp.qp->state, qp_state::reset);
    change.values.pkey_index = 0;
    EXPECT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(qp.qp->state, qp_state::initialised);
}

TEST(timers, timers_have_their_specified_values) {
    EXPECT_EQ(acknowledge_timeout_ns(0), 0u);
    EXPECT_EQ(acknowledge_timeout_ns(14), 4096ull << 14);
    EXPECT_EQ(rnr_wait_ns(1), 10'000u);
    EXPECT_EQ(rnr_wait_ns(12), 640'000u);
    EXPECT_EQ(rnr_wait_ns(0), 655'360'000u);
    EXPECT_EQ(rnr_wait_ns(31), 491'520'000u);
}

// ---- completion queues

struct queues : ::testing::Test {
    rig on;
    std::shared_ptr<event_pipe> channel = std::make_shared<event_pipe>(event_pipe::kind::completion);
    std::shared_ptr<event_pipe> asynchronous = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);

    ~queues() override {
        ::close(channel->read_descriptor());
        ::close(asynchronous->read_descriptor());
    }
    static completion some(std::uint16_t index, bool solicited = false) {
        completion what;
        what.wqe_counter = index;
        what.solicited = solicited;
        return what;
    }
};

TEST_F(queues, completions_wrap_with_the_owner_bit) {
    test_cq cq(on.adapter, 4);
    seen_completion seen;
    for (std::uint16_t round = 0; round < 100; ++round) {
        EXPECT_FALSE(cq.poll(seen));
        EXPECT_EQ(cq.queue->put(some(round), MLX5_CQE_REQ, 0), completion_queue::outcome::written);
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.index, round);
    }
}

TEST_F(queues, an_overrun_is_a_permanent_error_with_one_event) {
    test_cq cq(on.adapter, 4, nullptr, asynchronous);
    for (std::uint16_t at = 0; at < 4; ++at) cq.queue->put(some(at), MLX5_CQE_REQ, 0);
    EXPECT_FALSE(asynchronous->readable());
    EXPECT_EQ(cq.queue->put(some(4), MLX5_CQE_REQ, 0), completion_queue::outcome::overrun);
    EXPECT_EQ(cq.queue->put(some(5), MLX5_CQE_REQ, 0), completion_queue::outcome::overrun);
    ib_uverbs_async_event_desc event{};
    ASSERT_EQ(::read(asynchronous->read_descriptor(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
    EXPECT_EQ(event.event_type, static_cast<std::uint32_t>(IBV_EVENT_CQ_ERR));
    EXPECT_FALSE(asynchronous->readable());
    EXPECT_EQ(cq.queue->asynchronous_events_reported(), 1u);
}

TEST_F(queues, a_queue_notifies_once_for_each_arm) {
    test_cq cq(on.adapter, 16, channel);
    cq.queue->put(some(0), MLX5_CQE_REQ, 0);
    EXPECT_FALSE(channel->readable()) << "never armed";
    cq.arm(false);
    EXPECT_TRUE(channel->readable()) << "armed behind an unread completion";
    EXPECT_EQ(channel->take_back(cq.queue->user_handle()), 1u);
    cq.queue->put(some(1), MLX5_CQE_REQ, 0);
    EXPECT_FALSE(channel->readable()) << "one event for one arm";
    cq.arm(false);
    EXPECT_TRUE(channel->readable());
    EXPECT_EQ(channel->take_back(cq.queue->user_handle()), 1u);
    cq.arm(false);
    EXPECT_FALSE(channel->readable()) << "an event told of both already";
    seen_completion seen;
    while (cq.poll(seen)) {
    }
    cq.arm(false);
    EXPECT_FALSE(channel->readable()) << "nothing new";
    cq.queue->put(some(2), MLX5_CQE_REQ, 0);
    EXPECT_TRUE(channel->readable());
}

TEST_F(queues, solicited_arm_waits_for_a_solicited_completion_or_an_error) {
    test_cq cq(on.adapter, 16, channel);
    cq.arm(true);
    cq.queue->put(some(0), MLX5_CQE_RESP_SEND, 0);
    EXPECT_FALSE(channel->readable());
    cq.queue->put(some(1, true), MLX5_CQE_RESP_SEND, 0);
    EXPECT_TRUE(channel->readable());
    channel->take_back(cq.queue->user_handle());
    seen_completion seen;
    while (cq.poll(seen)) {
    }
    cq.arm(true);
    completion error = some(2);
    error.error = syndrome::flushed;
    cq.queue->put(error, MLX5_CQE_RESP_ERR, 0);
    EXPECT_TRUE(channel->readable());
}

TEST_F(queues, destroy_reports_the_events_that_were_read) {
    test_cq cq(on.adapter, 16, channel);
    test_cq other(on.adapter, 16, channel);
    seen_completion seen;
    for (std::uint16_t round = 0; round < 3; ++round) {
        cq.arm(false);
        cq.queue->put(some(round), MLX5_CQE_REQ, 0);
        cq.poll(seen);
    }
    other.arm(false);
    other.queue->put(some(0), MLX5_CQE_REQ, 0);
    std::uint64_t event = 0;
    ASSERT_EQ(::read(channel->read_descriptor(), &event, 8), 8);
    EXPECT_EQ(cq.queue->completion_events_reported(), 1u) << "three sent, one read";
    ASSERT_EQ(::read(channel->read_descriptor(), &event, 8), 8);
    EXPECT_EQ(event, other.queue->user_handle()) << "the other queue's event is still there";
}

TEST_F(queues, resize_marks_the_end_of_the_old_buffer) {
    test_cq cq(on.adapter, 4);
    cq.queue->put(some(1), MLX5_CQE_REQ, 0);
    std::vector<std::byte> bigger(64 * 64, std::byte{0xf0});
    EXPECT_FALSE(cq.queue->resize(reinterpret_cast<std::uint64_t>(bigger.data()), 1)) << "the unread one does not fit";
    ASSERT_TRUE(cq.queue->resize(reinterpret_cast<std::uint64_t>(bigger.data()), 64));
    cq.queue->put(some(2), MLX5_CQE_REQ, 0);
    seen_completion seen;
    ASSERT_TRUE(cq.poll(seen));
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESIZE_CQ);
    EXPECT_EQ(static_cast<unsigned>(bigger[2 * 64 + 63]) >> 4, 0u) << "goes on at the next index of the new one";
}

TEST_F(queues, an_unmapped_buffer_is_an_error_not_a_crash) {
    guarded::install_fault_handler();
    completion_queue_options options;
    options.buffer = 4096;
    options.doorbell_record = 8192;
    options.entries = 4;
    options.asynchronous = asynchronous;
    completion_queue lost(77, options);
    EXPECT_NE(lost.put(some(0), MLX5_CQE_REQ, 0), completion_queue::outcome::written);
    EXPECT_TRUE(asynchronous->readable());
}

}  // namespace
}  // namespace accel::softnic
