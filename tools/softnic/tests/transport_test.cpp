// SPDX-License-Identifier: Apache-2.0
// RC as it should be when nothing goes wrong on the way, and the errors that are the program's own.
#include <array>
#include <numeric>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rig.hpp"

namespace accel::softnic {
namespace {

using testing::connect_pair;
using testing::link_options;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

struct pair : ::testing::Test {
    rig on;
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cq{on.adapter, 256};
    test_cq other_cq{on.adapter, 256};
    test_qp qp{on.adapter, cq, cq, 1, qp_type::reliable_connection, events};
    test_qp other{on.adapter, other_cq, other_cq, 1, qp_type::reliable_connection, events};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(5000);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(5000);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    pair() {
        std::iota(from.begin(), from.end(), std::uint8_t{1});
        connect_pair(on.adapter, qp, other);
    }
    ~pair() override { ::close(events->read_descriptor()); }

    work message(std::uint8_t opcode, std::uint32_t length) {
        work what;
        what.opcode = opcode;
        if (length != 0) what.pieces = {piece(from.data(), length, from_key)};
        what.remote = reinterpret_cast<std::uint64_t>(to.data());
        what.rkey = to_key;
        return what;
    }
    std::uint16_t run(const work& what) {
        const std::uint16_t index = qp.post(what);
        qp.ring();
        EXPECT_TRUE(on.settle());
        return index;
    }
    void expect_error(std::uint16_t index, syndrome expected) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ_ERR);
        EXPECT_EQ(seen.index, index);
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(expected));
        EXPECT_NE(seen.vendor, 0);
        EXPECT_EQ(seen.user_index, 0x777u);
        EXPECT_EQ(qp.qp->state, qp_state::error);
    }
    std::uint32_t next_event() {
        ib_uverbs_async_event_desc event{};
        if (!events->readable()) return ~0u;
        EXPECT_EQ(::read(events->read_descriptor(), &event, sizeof event), static_cast<ssize_t>(sizeof event));
        return event.event_type;
    }
};

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

TEST_F(pair, remote_access_violations) {
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

TEST_F(pair, the_queue_pair_must_allow_it_too) {
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

TEST_F(pair, a_send_longer_than_its_receive) {
    other.post_receive(std::array{piece(to.data(), 100, to_key)});
    expect_error(run(message(MLX5_OPCODE_SEND, 700)), syndrome::remote_invalid_request);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length));
}

TEST_F(pair, a_receive_with_a_bad_key) {
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
    auto* gone = static_cast<std::uint8_t*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const std::uint32_t key = on.add_region(gone, size, 1, 0xf);
    ::munmap(gone, size);
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
}

TEST_F(pair, garbage_work_requests_are_errors) {
    const std::array<std::byte, 64> garbage{std::byte{0xff}, std::byte{0x13}};
    const std::uint16_t index = qp.post_raw(garbage);
    qp.ring();
    ASSERT_TRUE(on.settle());
    expect_error(index, syndrome::local_qp_operation);
}

TEST_F(pair, a_doorbell_for_more_than_the_ring_holds_is_fatal) {
    qp.set_send_record(static_cast<std::uint16_t>(test_qp::send_blocks + 1));
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(qp.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
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

TEST_F(pair, error_state_flushes_both_queues_and_what_comes_later) {
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

TEST_F(pair, draining_finishes_what_was_started_and_says_so) {
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

TEST_F(pair, more_reads_than_agreed_wait_their_turn) {
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
