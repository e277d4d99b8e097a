// SPDX-License-Identifier: Apache-2.0
// RC when the program does something wrong: which error, where, and what becomes of the rest.
#include "pair_fixture.hpp"

#include <array>

#include <sys/mman.h>

namespace accel::softnic {
namespace {

using testing::connect_pair;
using testing::link_options;
using testing::pair;
using testing::piece;
using testing::test_cq;
using testing::test_qp;
using testing::work;

TEST_F(pair, a_wrong_remote_key_is_a_remote_access_error) {
    work bad_key = message(MLX5_OPCODE_RDMA_WRITE, 10);
    bad_key.rkey += 1;
    const std::uint16_t index = qp.post(bad_key);
    const std::uint16_t next = qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    qp.ring();
    ASSERT_TRUE(on.settle());
    expect_error(index, syndrome::remote_access);
    expect_error(next, syndrome::flushed);
    EXPECT_EQ(other.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_ACCESS_ERR));
    EXPECT_EQ(next_event(), ~0u) << "the requester has a completion, and so no event";
    EXPECT_EQ(to[0], 0);
}

TEST_F(pair, writes_past_the_end_of_a_region_write_nothing) {
    work what = message(MLX5_OPCODE_RDMA_WRITE, 2000);
    what.remote += 3001;
    expect_error(run(what), syndrome::remote_access);
    EXPECT_EQ(to[3001], 0) << "checked before the first byte";
}

TEST_F(pair, a_region_of_another_domain_is_refused) {
    work what = message(MLX5_OPCODE_RDMA_WRITE, 8);
    what.rkey = on.add_region(to.data(), to.size(), 2, 0xf);
    expect_error(run(what), syndrome::remote_access);
}

TEST_F(pair, a_read_needs_permission_of_the_queue_pair) {
    test_qp one(on.adapter, cq, cq, 1);
    test_qp two(on.adapter, other_cq, other_cq, 1);
    link_options how;
    how.access = access::remote_write;
    connect_pair(on.adapter, one, two, how);
    const std::uint16_t index = one.post(message(MLX5_OPCODE_RDMA_READ, 8));
    one.ring();
    ASSERT_TRUE(on.settle());
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.index, index);
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::remote_access));
}

TEST_F(pair, a_bad_local_key_is_a_local_protection_error_after_what_came_before) {
    const std::uint16_t good = qp.post(message(MLX5_OPCODE_RDMA_WRITE, 4000));
    work bad = message(MLX5_OPCODE_RDMA_WRITE, 10);
    bad.pieces[0].lkey += 0x100;
    const std::uint16_t index = qp.post(bad);
    qp.ring();
    ASSERT_TRUE(on.settle());
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    EXPECT_EQ(seen.index, good);
    expect_error(index, syndrome::local_protection);
    EXPECT_EQ(other.qp->state, qp_state::ready_to_send) << "the other side knows nothing of it";
}

TEST_F(pair, a_read_into_memory_without_local_write_fails) {
    work what = message(MLX5_OPCODE_RDMA_READ, 8);
    what.pieces[0].lkey = on.add_region(from.data(), from.size(), 1, access::remote_read);
    expect_error(run(what), syndrome::local_protection);
}

TEST_F(pair, a_send_longer_than_its_receive_is_an_error_at_both_ends) {
    other.post_receive(std::array{piece(to.data(), 100, to_key)});
    expect_error(run(message(MLX5_OPCODE_SEND, 700)), syndrome::remote_invalid_request);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length));
}

TEST_F(pair, a_receive_with_a_bad_key_is_an_error_at_both_ends) {
    other.post_receive(std::array{piece(to.data(), 100, to_key + 1)});
    expect_error(run(message(MLX5_OPCODE_SEND, 10)), syndrome::remote_operation);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_protection));
}

TEST_F(pair, a_misaligned_atomic_is_an_invalid_request) {
    work what = message(MLX5_OPCODE_ATOMIC_FA, 8);
    what.remote += 4 - what.remote % 8;
    expect_error(run(what), syndrome::remote_invalid_request);
}

TEST_F(pair, unmapped_memory_is_an_error_on_either_side) {
    constexpr std::size_t size = 8192;
    auto* gone =
        static_cast<std::uint8_t*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const std::uint32_t key = on.add_region(gone, size, 1, 0xf);
    ::munmap(gone, size);
    // Nobody else gets these addresses meanwhile.
    ::mmap(gone, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    work remote = message(MLX5_OPCODE_RDMA_WRITE, 100);
    remote.remote = reinterpret_cast<std::uint64_t>(gone);
    remote.rkey = key;
    expect_error(run(remote), syndrome::remote_access);

    test_qp one(on.adapter, cq, cq, 1);
    test_qp two(on.adapter, other_cq, other_cq, 1);
    connect_pair(on.adapter, one, two);
    work local = message(MLX5_OPCODE_RDMA_WRITE, 0);
    local.pieces = {piece(gone, 100, key)};
    one.post(local);
    one.ring();
    ASSERT_TRUE(on.settle());
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_protection));
    EXPECT_EQ(seen.vendor, static_cast<std::uint8_t>(vendor_syndrome::memory_fault));
    ::munmap(gone, size);
}

TEST_F(pair, garbage_work_requests_are_errors) {
    const std::array<std::byte, 64> garbage{std::byte{0xff}, std::byte{0x13}};
    const std::uint16_t index = qp.post_raw(garbage);
    qp.ring();
    ASSERT_TRUE(on.settle());
    expect_error(index, syndrome::local_qp_operation);
}

TEST_F(pair, a_doorbell_for_more_than_the_ring_holds_is_fatal) {
    qp.set_send_record(static_cast<std::uint16_t>(test_qp::send_wqebbs + 1));
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(qp.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
}

TEST_F(pair, the_error_state_flushes_both_queues_and_later_requests) {
    qp.post_receive({});
    qp_modification change;
    change.mask = IBV_QP_STATE;
    change.next = qp_state::error;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::flushed));
    expect_error(run(message(MLX5_OPCODE_RDMA_WRITE, 10)), syndrome::flushed);
    qp.post_receive({});
    on.step();
    ASSERT_TRUE(cq.poll(seen)) << "receives have no doorbell, and are flushed all the same";
    change.next = qp_state::reset;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    EXPECT_EQ(qp.qp->state, qp_state::reset);
}

TEST_F(pair, a_full_completion_queue_stops_the_queue_pair) {
    test_cq small(on.adapter, 2, nullptr, events);
    test_qp one(on.adapter, small, small, 1, qp_type::reliable_connection, events);
    test_qp two(on.adapter, other_cq, other_cq, 1);
    connect_pair(on.adapter, one, two);
    for (int count = 0; count < 3; ++count) one.post(message(MLX5_OPCODE_RDMA_WRITE, 1));
    one.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(one.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_CQ_ERR));
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
}

}  // namespace
}  // namespace accel::softnic
