// SPDX-License-Identifier: Apache-2.0
// Two queue pairs made by mlx5dv_devx_*, posted to and polled by hand. Runs under `softnic run`.
#include "devx_rig.hpp"

#include <cerrno>

#include <gtest/gtest.h>

namespace {

namespace st = accel::softnic::testing;
namespace prm = accel::softnic::devx;

struct devx_pair : ::testing::Test, st::devx_ground {
    st::devx_cq cq{context.get(), uar->page_id};
    st::devx_cq other_cq{context.get(), uar->page_id};
    st::devx_qp qp{context.get(), domain, *uar, cq, cq};
    st::devx_qp other{context.get(), domain, *uar, other_cq, other_cq};

    void SetUp() override {
        qp.connect(other.number(), 1);
        other.connect(qp.number(), 1);
    }
};

TEST_F(devx_pair, batches_of_writes_land_and_complete_in_order_over_many_turns_of_the_queues) {
    for (std::uint32_t round = 0; round < 300; ++round) {
        const std::size_t offset = round * 97 % 40000;
        const std::uint32_t size = 1 + round * 11 % 700;
        const std::uint32_t batch = 1 + round % 28;
        std::fill(to.begin(), to.end(), std::uint8_t{0});
        std::uint16_t first = 0;
        for (std::uint32_t at = 0; at < batch; ++at) {
            const std::uint16_t index = qp.post(write(offset + at * size, size));
            if (at == 0) first = index;
        }
        qp.ring();
        for (std::uint32_t at = 0; at < batch; ++at) {
            const mlx5_cqe64 cqe = st::next_completion(cq);
            ASSERT_EQ(cqe.op_own >> 4, MLX5_CQE_REQ);
            ASSERT_EQ(be16toh(cqe.wqe_counter), static_cast<std::uint16_t>(first + at));
            ASSERT_EQ(be32toh(cqe.sop_drop_qpn) & 0xffffff, qp.number());
            ASSERT_EQ(be32toh(cqe.srqn_uidx), 0x321u);
        }
        EXPECT_TRUE(has_data(offset, offset + std::size_t{batch} * size));
    }
}

TEST_F(devx_pair, receives_in_a_umem_take_immediate_data) {
    other.post_receive(reinterpret_cast<std::uint64_t>(to.data()), 64, to_mr->lkey);
    auto what = write(128, 256);
    what.opcode = MLX5_OPCODE_RDMA_WRITE_IMM;
    what.immediate = 0xabcd1234;
    qp.post(what);
    qp.ring();
    const mlx5_cqe64 received = st::next_completion(other_cq);
    EXPECT_EQ(received.op_own >> 4, MLX5_CQE_RESP_WR_IMM);
    EXPECT_EQ(be32toh(received.imm_inval_pkey), 0xabcd1234u);
    EXPECT_EQ(be32toh(received.byte_cnt), 256u);
    EXPECT_EQ(st::next_completion(cq).op_own >> 4, MLX5_CQE_REQ);
    EXPECT_TRUE(has_data(128, 384));
}

TEST_F(devx_pair, verbs_queue_pairs_answer_devx_questions) {
    st::cq_owner plain_cq{ibv_create_cq(context.get(), 16, nullptr, nullptr, 0)};
    st::qp_owner plain = st::make_qp(pd.get(), plain_cq.get(), plain_cq.get());
    std::array<std::byte, 16> in{};
    std::array<std::byte, 0x110> out{};
    prm::mailbox_out command(in);
    command.set(prm::header::opcode, static_cast<std::uint64_t>(prm::opcode::query_qp));
    command.set(prm::header::object, plain->qp_num);
    ASSERT_EQ(mlx5dv_devx_qp_query(plain.get(), in.data(), in.size(), out.data(), out.size()), 0);
    EXPECT_EQ(prm::mailbox_in(out).get(prm::qpc::pd.at(prm::query_qp::context)), domain);
    command.set(prm::header::object, qp.number());
    EXPECT_EQ(mlx5dv_devx_qp_query(plain.get(), in.data(), in.size(), out.data(), out.size()), EINVAL)
        << "the number is not that of the handle";
}

}  // namespace
