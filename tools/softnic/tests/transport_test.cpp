// SPDX-License-Identifier: Apache-2.0
// When RC begins and ends. What it does between is in property_test.cpp.
#include "pair_fixture.hpp"

namespace accel::softnic {
namespace {

using testing::pair;

/// And then reads the data, too.
TEST_F(pair, a_work_request_is_read_when_the_doorbell_rings) {
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(to[0], 0) << "the record alone does nothing";
    EXPECT_FALSE(cq.poll(seen));
    from[0] = 99;
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(to[0], 99);
}

TEST_F(pair, draining_finishes_started_work_reports_it_once_and_keeps_the_rest) {
    on.add_fault("drop count=16 op=read_response");  // so that it is under way
    const std::uint16_t started = qp.post(message(MLX5_OPCODE_RDMA_READ, 4000));
    qp.ring();
    on.step();
    qp_modification change;
    change.mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
    change.next = qp_state::send_drained;
    change.notify_drained = true;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(next_event(), no_event);
    const std::uint16_t kept = qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    qp.ring();
    ASSERT_TRUE(on.settle());
    expect_done(started);
    EXPECT_FALSE(cq.poll(seen));
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_SQ_DRAINED));
    change.mask = IBV_QP_STATE;
    change.next = qp_state::ready_to_send;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    ASSERT_TRUE(on.settle());
    expect_done(kept);
    change.mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
    change.next = qp_state::send_drained;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_SQ_DRAINED)) << "at once, with nothing under way";
    EXPECT_EQ(next_event(), no_event);
}

}  // namespace
}  // namespace accel::softnic
