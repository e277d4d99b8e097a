// SPDX-License-Identifier: Apache-2.0
// RC as it should be when nothing goes wrong.
#include "pair_fixture.hpp"

#include <array>
#include <numeric>

namespace accel::softnic {
namespace {

using testing::pair;
using testing::piece;
using testing::work;

TEST_F(pair, writes_of_all_lengths_land_and_complete) {
    for (const std::uint32_t length : {0u, 1u, 8u, 255u, 256u, 257u, 512u, 4999u}) {
        std::fill(to.begin(), to.end(), std::uint8_t{0});
        const std::uint16_t index = run(message(MLX5_OPCODE_RDMA_WRITE, length));
        ASSERT_TRUE(cq.poll(seen)) << length;
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
        EXPECT_EQ(seen.index, index);
        EXPECT_TRUE(std::equal(to.begin(), to.begin() + length, from.begin())) << length;
        EXPECT_EQ(to[length], 0);
    }
    EXPECT_FALSE(other_cq.poll(seen)) << "a write is not seen at the other side";
}

TEST_F(pair, unsignalled_work_leaves_no_completion) {
    work silent = message(MLX5_OPCODE_RDMA_WRITE, 10);
    silent.signalled = false;
    run(silent);
    EXPECT_FALSE(cq.poll(seen));
    EXPECT_EQ(to[0], from[0]);
}

TEST_F(pair, write_with_immediate_takes_a_receive) {
    other.post_receive({});
    work what = message(MLX5_OPCODE_RDMA_WRITE_IMM, 700);
    what.immediate = 0xcafe;
    run(what);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_WR_IMM);
    EXPECT_EQ(seen.immediate, 0xcafeu);
    EXPECT_EQ(seen.bytes, 700u);
    EXPECT_TRUE(cq.poll(seen));
}

TEST_F(pair, send_scatters_over_several_pieces) {
    const std::array pieces{piece(to.data(), 100, to_key), piece(to.data() + 1000, 1, to_key),
                            piece(to.data() + 2000, 900, to_key)};
    other.post_receive(pieces);
    work what = message(MLX5_OPCODE_SEND_IMM, 0);
    what.inlined.assign(30, std::byte{0xaa});
    what.pieces = {piece(from.data(), 70, from_key), piece(from.data() + 3000, 600, from_key)};
    what.immediate = 5;
    run(what);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_IMM);
    EXPECT_EQ(seen.bytes, 700u);
    EXPECT_EQ(to[29], 0xaa);
    EXPECT_EQ(to[30], from[0]);
    EXPECT_EQ(to[1000], from[3000]);
    EXPECT_EQ(to[2000], from[3001]);
    EXPECT_EQ(to[2598], from[3599]);
}

TEST_F(pair, reads_and_atomics_bring_their_values) {
    work read = message(MLX5_OPCODE_RDMA_READ, 4000);
    std::iota(to.begin(), to.end(), std::uint8_t{77});
    run(read);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.bytes, 4000u);
    EXPECT_TRUE(std::equal(to.begin(), to.begin() + 4000, from.begin()));

    alignas(8) std::uint64_t counter = 40;
    alignas(8) std::uint64_t result = 0;
    const std::uint32_t counter_key = on.add_region(&counter, 8, 1, 0xf);
    const std::uint32_t result_key = on.add_region(&result, 8, 1, 0xf);
    work add;
    add.opcode = MLX5_OPCODE_ATOMIC_FA;
    add.pieces = {piece(&result, 8, result_key)};
    add.remote = reinterpret_cast<std::uint64_t>(&counter);
    add.rkey = counter_key;
    add.swap_or_add = 2;
    run(add);
    EXPECT_EQ(result, 40u);
    EXPECT_EQ(counter, 42u);
    work swap = add;
    swap.opcode = MLX5_OPCODE_ATOMIC_CS;
    swap.compare = 42;
    swap.swap_or_add = 7;
    run(swap);
    EXPECT_EQ(result, 42u);
    EXPECT_EQ(counter, 7u);
    run(swap);
    EXPECT_EQ(result, 7u);
    EXPECT_EQ(counter, 7u) << "did not compare equal";
}

TEST_F(pair, a_nop_completes_in_order) {
    const std::uint16_t first = qp.post(message(MLX5_OPCODE_RDMA_READ, 3000));
    work nop;
    nop.opcode = MLX5_OPCODE_NOP;
    const std::uint16_t second = qp.post(nop);
    qp.ring();
    ASSERT_TRUE(on.settle());
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.index, first);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.index, second);
}

TEST_F(pair, send_with_invalidate_ends_the_key) {
    other.post_receive(std::array{piece(to.data(), 100, to_key)});
    std::vector<std::uint8_t> window(100);
    const std::uint32_t window_key = on.add_region(window);
    work what = message(MLX5_OPCODE_SEND_INVAL, 10);
    what.immediate = window_key;
    run(what);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_INV);
    EXPECT_EQ(seen.immediate, window_key);
    ASSERT_TRUE(cq.poll(seen));
    work write = message(MLX5_OPCODE_RDMA_WRITE, 10);
    write.remote = reinterpret_cast<std::uint64_t>(window.data());
    write.rkey = window_key;
    expect_error(run(write), syndrome::remote_access);
}

TEST_F(pair, the_record_without_a_doorbell_does_nothing) {
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(to[0], 0);
    EXPECT_FALSE(cq.poll(seen));
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(to[0], from[0]);
}

TEST_F(pair, the_work_request_is_read_when_the_doorbell_rings) {
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    from[0] = 99;  // data too is read late
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(to[0], 99);
}

TEST_F(pair, draining_finishes_started_work_and_reports_it) {
    qp.post(message(MLX5_OPCODE_RDMA_READ, 4000));
    qp.ring();
    on.step();
    qp_modification change;
    change.mask = IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY;
    change.next = qp_state::send_drained;
    change.notify_drained = true;
    ASSERT_EQ(on.adapter.modify_qp(*qp.qp, change), 0);
    ASSERT_TRUE(on.settle());
    EXPECT_TRUE(cq.poll(seen));
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_SQ_DRAINED));
}

TEST_F(pair, reads_beyond_the_agreed_number_wait) {
    std::vector<std::uint16_t> posted;
    for (int count = 0; count < 20; ++count) posted.push_back(qp.post(message(MLX5_OPCODE_RDMA_READ, 600)));
    qp.ring();
    ASSERT_TRUE(on.settle());
    for (const std::uint16_t index : posted) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
        EXPECT_EQ(seen.index, index);
    }
}

TEST_F(pair, a_fence_waits_for_reads) {
    alignas(8) std::uint64_t value = 1;
    alignas(8) std::uint64_t brought = 0;
    const std::uint32_t value_key = on.add_region(&value, 8, 1, 0xf);
    const std::uint32_t brought_key = on.add_region(&brought, 8, 1, 0xf);
    work add;
    add.opcode = MLX5_OPCODE_ATOMIC_FA;
    add.pieces = {piece(&brought, 8, brought_key)};
    add.remote = reinterpret_cast<std::uint64_t>(&value);
    add.rkey = value_key;
    add.swap_or_add = 99;
    qp.post(add);
    work write = message(MLX5_OPCODE_RDMA_WRITE, 0);
    write.pieces = {piece(&brought, 8, brought_key)};
    write.fenced = true;
    qp.post(write);
    qp.ring();
    ASSERT_TRUE(on.settle());
    std::uint64_t landed = 0;
    std::memcpy(&landed, to.data(), 8);
    EXPECT_EQ(landed, 1u) << "the write sends what the atomic brought";
}

}  // namespace
}  // namespace accel::softnic
