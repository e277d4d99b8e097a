// SPDX-License-Identifier: Apache-2.0
// Dynamically connected transport, on virtual time: which connection a message takes, and what ends one.
#include "transport/dynamic.hpp"

#include "rig.hpp"

#include <numeric>
#include <utility>

#include <endian.h>
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
using testing::test_qp;

constexpr std::uint64_t right_key = 0xabcdef0123456789;

settings with_faults(const char* rules) {
    settings chosen;
    chosen.faults = rules;
    return chosen;
}

/// A shared receive queue as libmlx5 lays it out: each element names the next.
class test_srq {
  public:
    static constexpr std::uint32_t entries = 16;

    test_srq() {
        for (std::uint32_t at = 0; at < entries; ++at) {
            mlx5_wqe_srq_next_seg link{};
            link.next_wqe_index = htobe16(static_cast<std::uint16_t>((at + 1) % entries));
            std::memcpy(buffer_.data() + at * stride, &link, sizeof link);
        }
        queue = std::make_shared<shared_receive_queue>(
            shared_receive_queue::identity{1, 1, 0, 1, nullptr},
            receive_queue_options{reinterpret_cast<std::uint64_t>(buffer_.data()),
                                  reinterpret_cast<std::uint64_t>(&record_), entries, 5});
    }
    void post(const segment& piece) {
        const mlx5_wqe_data_seg data{htobe32(piece.length), htobe32(piece.lkey), htobe64(piece.address)};
        std::memcpy(buffer_.data() + (posted_ % entries) * stride + 16, &data, sizeof data);
        record_ = htobe32(++posted_);
    }

    std::shared_ptr<shared_receive_queue> queue;

  private:
    static constexpr std::uint32_t stride = 32;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(entries * stride);
    alignas(8) std::uint32_t record_ = 0;
    std::uint16_t posted_ = 0;
};

/// An initiator, and two targets that share a completion queue and receives.
struct dynamic_pair : ::testing::Test {
    rig on;
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cq{on.adapter, 256};
    test_cq other_cq{on.adapter, 256};
    test_srq srq;
    test_qp qp{on.adapter, cq, cq, 1, qp_type::dynamic_initiator};
    queue_pair* one = nullptr;
    queue_pair* two = nullptr;
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(8192);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(8192);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    explicit dynamic_pair(settings chosen = {}) : on(std::move(chosen)) {
        std::iota(from.begin(), from.end(), std::uint8_t{1});
        make_initiator_ready();
        one = make_target();
        two = make_target();
    }
    ~dynamic_pair() override {
        for (queue_pair* each : {one, two})
            if (each != nullptr) on.adapter.destroy_qp(*each);
    }

    void step(queue_pair& which, qp_state next, std::uint32_t mask, qp_modification change = {}) {
        change.next = next;
        change.mask = mask | IBV_QP_STATE;
        ASSERT_EQ(on.adapter.modify_qp(which, change), 0);
    }
    void make_initiator_ready() {
        qp_modification change;
        change.values.path_mtu = 1;
        change.values.timeout = 10;
        change.values.retry_count = 7;
        change.values.rnr_retry = 7;
        change.values.max_rd_atomic = 4;
        change.values.send_psn = 0xfffffa;
        step(*qp.qp, qp_state::initialised, IBV_QP_PKEY_INDEX | IBV_QP_PORT, change);
        step(*qp.qp, qp_state::ready_to_receive, IBV_QP_PATH_MTU, change);
        step(*qp.qp, qp_state::ready_to_send,
             IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN, change);
    }
    queue_pair* make_target() {
        queue_pair_options options;
        options.type = qp_type::dynamic_target;
        options.pd = 1;
        options.user_index = 0x555;
        options.access_key = right_key;
        options.receive_cq = other_cq.queue;
        options.shared_receives = srq.queue;
        options.asynchronous = events;
        queue_pair* made = on.adapter.create_qp(0, std::move(options));
        qp_modification change;
        change.values.access = 0xf;
        change.values.path_mtu = 1;
        change.values.min_rnr_timer = 1;
        change.values.destination.dlid = 1;
        step(*made, qp_state::initialised, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, change);
        step(*made, qp_state::ready_to_receive, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, change);
        return made;
    }

    std::uint16_t post(std::uint8_t opcode, std::uint32_t target, std::size_t offset, std::uint32_t length,
                       std::uint64_t key = right_key) {
        mlx5_wqe_ctrl_seg control{};
        const bool remote = opcode != MLX5_OPCODE_SEND_IMM;
        control.opmod_idx_opcode = htobe32(std::uint32_t{qp.produced()} << 8 | opcode);
        control.qpn_ds = htobe32(qp.qp->number << 8 | (remote ? 6u : 5u));
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        control.imm = htobe32(0xbeef);
        mlx5_wqe_av av{};
        av.key.dc_key = htobe64(key);
        av.dqp_dct = htobe32(0x80000000u | target);
        av.rlid = htobe16(1);
        const mlx5_wqe_raddr_seg there{htobe64(reinterpret_cast<std::uint64_t>(to.data()) + offset), htobe32(to_key),
                                       0};
        const mlx5_wqe_data_seg data{htobe32(length), htobe32(from_key),
                                     htobe64(reinterpret_cast<std::uint64_t>(from.data()) + offset)};
        std::vector<std::byte> bytes(16 + 48 + (remote ? 32 : 16));
        std::memcpy(bytes.data(), &control, 16);
        std::memcpy(bytes.data() + 16, &av, 48);
        if (remote) std::memcpy(bytes.data() + 64, &there, 16);
        std::memcpy(bytes.data() + bytes.size() - 16, &data, 16);
        return qp.post_raw(bytes);
    }
    void run() {
        qp.ring();
        EXPECT_TRUE(on.settle());
    }
    void expect_done(std::uint16_t index) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
        EXPECT_EQ(seen.index, index);
    }
    void expect_failed(std::uint16_t index, syndrome expected) {
        ASSERT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ_ERR);
        EXPECT_EQ(seen.index, index);
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(expected));
        EXPECT_EQ(qp.qp->state, qp_state::error);
    }
    void start_again() {
        step(*qp.qp, qp_state::reset, 0);
        make_initiator_ready();
    }
    bool same(std::size_t begin, std::size_t end) const {
        return std::equal(from.begin() + static_cast<std::ptrdiff_t>(begin),
                          from.begin() + static_cast<std::ptrdiff_t>(end),
                          to.begin() + static_cast<std::ptrdiff_t>(begin));
    }
};

TEST_F(dynamic_pair, each_message_goes_to_its_own_target) {
    for (std::uint16_t at = 0; at < 8; ++at)
        post(MLX5_OPCODE_RDMA_WRITE, (at % 2 == 0 ? one : two)->number, std::size_t{at} * 1000, 1000);
    run();
    for (std::uint16_t at = 0; at < 8; ++at) expect_done(static_cast<std::uint16_t>(at * 2));
    EXPECT_TRUE(same(0, 8000));
    EXPECT_EQ(one->dynamic.connections.size(), 1u);
    EXPECT_EQ(two->dynamic.connections.size(), 1u);
}

TEST_F(dynamic_pair, sends_take_the_shared_receives_and_name_the_target) {
    srq.post(testing::piece(to.data(), 4096, to_key));
    srq.post(testing::piece(to.data() + 4096, 4096, to_key));
    post(MLX5_OPCODE_SEND_IMM, one->number, 0, 1000);
    post(MLX5_OPCODE_SEND_IMM, two->number, 4096, 1000);
    run();
    for (const queue_pair* target : {one, two}) {
        ASSERT_TRUE(other_cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_IMM);
        EXPECT_EQ(seen.bytes, 1000u);
        EXPECT_EQ(seen.immediate, 0xbeefu);
        EXPECT_EQ(seen.user_index, 0x555u);
        EXPECT_EQ(target->state, qp_state::ready_to_receive);
    }
    EXPECT_TRUE(same(0, 1000) && same(4096, 5096));
}

TEST_F(dynamic_pair, a_send_waits_for_a_receive) {
    const std::uint16_t index = post(MLX5_OPCODE_SEND_IMM, one->number, 0, 700);
    qp.ring();
    for (int at = 0; at < 200; ++at) on.step(10'000);
    EXPECT_FALSE(cq.poll(seen));
    srq.post(testing::piece(to.data(), 4096, to_key));
    EXPECT_TRUE(on.settle());
    expect_done(index);
    EXPECT_TRUE(same(0, 700));
}

TEST_F(dynamic_pair, a_wrong_access_key_is_refused_and_only_the_initiator_fails) {
    const std::uint16_t index = post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 1000, right_key ^ 1);
    run();
    expect_failed(index, syndrome::remote_access);
    EXPECT_EQ(to[0], 0);
    EXPECT_EQ(one->state, qp_state::ready_to_receive);
    EXPECT_FALSE(events->readable()) << "nothing has happened to the target";
    start_again();
    qp.qp->requester.consumed = qp.qp->requester.produced = qp.produced();  // the queue goes on where it was
    const std::uint16_t next = post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 1000);
    run();
    expect_done(next);
    EXPECT_TRUE(same(0, 1000));
}

TEST_F(dynamic_pair, a_target_that_is_not_there_never_answers) {
    const std::uint16_t index = post(MLX5_OPCODE_RDMA_WRITE, 0xfff0, 0, 1000);
    run();
    expect_failed(index, syndrome::transport_retry_exceeded);
}

TEST_F(dynamic_pair, a_queue_pair_of_another_kind_is_no_target) {
    test_qp plain(on.adapter, other_cq, other_cq, 1);
    testing::connect(on.adapter, *plain.qp, qp.qp->number);
    const std::uint16_t index = post(MLX5_OPCODE_RDMA_WRITE, plain.qp->number, 0, 1000);
    run();
    expect_failed(index, syndrome::transport_retry_exceeded);
    EXPECT_EQ(to[0], 0);
}

TEST_F(dynamic_pair, an_error_of_one_initiator_leaves_the_others_connected) {
    test_qp second(on.adapter, cq, cq, 1, qp_type::dynamic_initiator);
    post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 100);
    run();
    expect_done(0);
    to_key ^= 0x100;  // no such key
    const std::uint16_t index = post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 100);
    run();
    expect_failed(index, syndrome::remote_access);
    EXPECT_EQ(one->state, qp_state::ready_to_receive);
    EXPECT_FALSE(events->readable());
}

TEST_F(dynamic_pair, a_packet_of_an_earlier_connection_is_dropped) {
    post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 100);
    run();
    expect_done(0);
    packet_header old{};
    old.kind = packet_kind::write;
    old.flags = packet_flag::first | packet_flag::last | packet_flag::ack_request;
    old.from = {0, 1};
    old.from_qpn = qp.qp->number;
    old.to_qpn = one->number;
    old.session = qp.qp->dynamic.session - 1;
    old.access_key = right_key;
    old.first_psn = old.psn = 5;
    const queue_pair& end = *one->dynamic.connections.begin()->second;
    const std::uint32_t expected = end.responder.expected_psn;
    softnic::dynamic::on_request(on.adapter.state, *one, arrival{old, {}});
    EXPECT_EQ(end.responder.expected_psn, expected);
    EXPECT_TRUE(end.responder.replies.empty());
    old.session = 0;
    softnic::dynamic::on_request(on.adapter.state, *one, arrival{old, {}});
    EXPECT_EQ(end.responder.expected_psn, expected) << "a request that says nothing of a connection";
}

TEST_F(dynamic_pair, a_destroyed_target_forgets_its_connections) {
    post(MLX5_OPCODE_RDMA_WRITE, one->number, 0, 100);
    run();
    expect_done(0);
    on.adapter.destroy_qp(*std::exchange(one, nullptr));
    for (const queue_pair* each : on.adapter.state.scheduled) EXPECT_FALSE(each->dynamic.is_connection);
    EXPECT_TRUE(on.settle());
}

struct dynamic_with_loss : dynamic_pair {
    dynamic_with_loss()
        : dynamic_pair(with_faults("drop p=0.1 seed=3; duplicate p=0.1 seed=4; reorder p=0.1 seed=5")) {}
};

TEST_F(dynamic_with_loss, every_message_is_done_once_whatever_gets_lost) {
    std::vector<std::uint64_t> counter(1);
    to_key = on.add_region(counter);
    for (std::uint32_t round = 0; round < 200; ++round) {
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{qp.produced()} << 8 | MLX5_OPCODE_ATOMIC_FA);
        control.qpn_ds = htobe32(qp.qp->number << 8 | 7);
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        mlx5_wqe_av av{};
        av.key.dc_key = htobe64(right_key);
        av.dqp_dct = htobe32(0x80000000u | (round % 2 == 0 ? one : two)->number);
        av.rlid = htobe16(1);
        const mlx5_wqe_raddr_seg there{htobe64(reinterpret_cast<std::uint64_t>(counter.data())), htobe32(to_key), 0};
        const mlx5_wqe_atomic_seg add{htobe64(1), 0};
        const mlx5_wqe_data_seg data{htobe32(8), htobe32(from_key),
                                     htobe64(reinterpret_cast<std::uint64_t>(from.data()))};
        std::vector<std::byte> bytes(112);
        std::memcpy(bytes.data(), &control, 16);
        std::memcpy(bytes.data() + 16, &av, 48);
        std::memcpy(bytes.data() + 64, &there, 16);
        std::memcpy(bytes.data() + 80, &add, 16);
        std::memcpy(bytes.data() + 96, &data, 16);
        const std::uint16_t index = qp.post_raw(bytes);
        run();
        expect_done(index);
        std::uint64_t before = 0;
        std::memcpy(&before, from.data(), sizeof before);
        ASSERT_EQ(before, round);
    }
    EXPECT_EQ(counter[0], 200u);
}

TEST(dynamic_transitions, transitions_are_those_of_the_vendors_driver) {
    constexpr auto dci = qp_type::dynamic_initiator;
    constexpr auto dct = qp_type::dynamic_target;
    constexpr std::uint32_t init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    EXPECT_TRUE(transition_allowed(dci, qp_state::reset, qp_state::initialised, init));
    EXPECT_FALSE(transition_allowed(dci, qp_state::reset, qp_state::initialised, init | IBV_QP_ACCESS_FLAGS));
    EXPECT_TRUE(transition_allowed(dct, qp_state::reset, qp_state::initialised, init | IBV_QP_ACCESS_FLAGS));
    EXPECT_FALSE(transition_allowed(dct, qp_state::ready_to_receive, qp_state::ready_to_send, IBV_QP_STATE));
    EXPECT_FALSE(transition_allowed(dct, qp_state::ready_to_receive, qp_state::reset, IBV_QP_STATE));
    EXPECT_TRUE(transition_allowed(dci, qp_state::ready_to_send, qp_state::error, IBV_QP_STATE));
}

}  // namespace
}  // namespace accel::softnic
