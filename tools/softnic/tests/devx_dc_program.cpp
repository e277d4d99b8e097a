// SPDX-License-Identifier: Apache-2.0
// Initiators, targets and their receive queues made by mlx5dv_devx_*, driven by hand. Runs under `softnic run`.
#include "devx_dc_rig.hpp"

#include <cerrno>

#include <gtest/gtest.h>

namespace {

namespace st = accel::softnic::testing;
namespace prm = accel::softnic::devx;

struct devx_dc : ::testing::Test, st::devx_dynamic {};

TEST_F(devx_dc, one_initiator_writes_to_two_targets_in_turns) {
    for (std::uint32_t round = 0; round < 200; ++round) {
        const std::size_t offset = round * 97 % 60000;
        const std::uint32_t length = 1 + round * 23 % 5000;
        std::fill(to.begin(), to.end(), std::uint8_t{0});
        const auto whom = round % 2 == 0 ? first->address() : second.address();
        const mlx5_cqe64 cqe = run(write_to(whom, offset, length));
        ASSERT_TRUE(st::succeeded(cqe)) << "round " << round << " syndrome " << int{st::syndrome_of(cqe)};
        ASSERT_EQ(be32toh(cqe.sop_drop_qpn) & 0xffffff, initiator.number());
        ASSERT_TRUE(has_data(offset, offset + length)) << "round " << round;
    }
}

TEST_F(devx_dc, one_doorbell_starts_messages_to_both_targets) {
    for (std::uint32_t at = 0; at < 32; ++at)
        initiator.post(write_to(at % 3 == 0 ? first->address() : second.address(), at * 100, 100));
    initiator.ring();
    for (std::uint16_t at = 0; at < 32; ++at) {
        const mlx5_cqe64 cqe = st::next_completion(cq);
        ASSERT_TRUE(st::succeeded(cqe));
        ASSERT_EQ(be16toh(cqe.wqe_counter), at);
    }
    EXPECT_TRUE(has_data(0, 3200));
}

TEST_F(devx_dc, reads_bring_what_the_target_has) {
    std::copy(from.begin(), from.end(), to.begin());
    std::vector<std::uint8_t> copy = from;
    std::fill(from.begin(), from.end(), std::uint8_t{0});
    auto read = write_to(first->address(), 4096, 20'000);
    read.opcode = MLX5_OPCODE_RDMA_READ;
    ASSERT_TRUE(st::succeeded(run(read)));
    EXPECT_TRUE(st::wait_until([&] { return std::memcmp(from.data() + 4096, copy.data() + 4096, 20'000) == 0; }));
    EXPECT_EQ(from[4095], 0);
    EXPECT_EQ(from[4096 + 20'000], 0);
}

/// Sends take the receives of both targets' queue in turns, many times around it.
void send_around(st::devx_dynamic& on) {
    for (std::uint32_t round = 0; round < 5 * st::devx_receive_queue::entries; ++round) {
        const std::uint32_t length = 1 + round * 61 % 3000;
        std::fill(on.to.begin(), on.to.end(), std::uint8_t{0});
        on.receives.post(reinterpret_cast<std::uint64_t>(on.to.data()), 4096, on.to_mr->lkey);
        auto send = on.write_to(round % 2 == 0 ? on.first->address() : on.second.address(), 0, length);
        send.opcode = MLX5_OPCODE_SEND_IMM;
        send.immediate = round;
        ASSERT_TRUE(st::succeeded(on.run(send)));
        const mlx5_cqe64 received = st::next_completion(on.target_cq);
        ASSERT_EQ(received.op_own >> 4, MLX5_CQE_RESP_SEND_IMM);
        ASSERT_EQ(be32toh(received.imm_inval_pkey), round);
        ASSERT_EQ(be32toh(received.byte_cnt), length);
        ASSERT_EQ(be32toh(received.srqn_uidx), 0x654u);
        ASSERT_EQ(be16toh(received.wqe_counter), on.receives.index_of(round));
        ASSERT_TRUE(on.has_data(0, length));
    }
}

TEST_F(devx_dc, sends_take_the_receives_of_a_cyclic_queue) {
    send_around(*this);
}

TEST(devx_dc_linked, sends_take_the_receives_of_a_linked_queue) {
    st::devx_dynamic on(st::receive_order::linked);
    send_around(on);
}

TEST_F(devx_dc, a_wrong_access_key_is_refused_and_counted) {
    auto stranger = first->address();
    stranger.access_key = second_key;
    const mlx5_cqe64 cqe = run(write_to(stranger, 0, 64));
    ASSERT_EQ(cqe.op_own >> 4, MLX5_CQE_REQ_ERR);
    EXPECT_EQ(st::syndrome_of(cqe), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    EXPECT_EQ(initiator.state(), 6u) << "ERR";
    EXPECT_EQ(first->violations(), 1u);
    EXPECT_EQ(second.violations(), 0u);
    EXPECT_EQ(to[0], 0) << "nothing was written";
    initiator.restart();
    EXPECT_TRUE(st::succeeded(run(write_to(first->address(), 0, 64)))) << "the target serves on";
    EXPECT_TRUE(has_data(0, 64));
}

TEST_F(devx_dc, a_target_destroyed_under_traffic_answers_no_more_and_the_other_serves_on) {
    constexpr std::uint32_t batch = 24;
    const auto gone = first->address();
    for (std::uint32_t at = 0; at < batch; ++at) initiator.post(write_to(gone, at * 2048, 2048));
    initiator.ring();
    first.reset();
    bool failed = false;
    for (std::uint32_t at = 0; at < batch; ++at) {
        const mlx5_cqe64 cqe = st::next_completion(cq);
        if (!failed && st::succeeded(cqe)) continue;
        EXPECT_EQ(cqe.op_own >> 4, MLX5_CQE_REQ_ERR);
        EXPECT_EQ(st::syndrome_of(cqe),
                  failed ? MLX5_CQE_SYNDROME_WR_FLUSH_ERR : MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
        failed = true;
    }
    if (!failed) {
        EXPECT_EQ(st::syndrome_of(run(write_to(gone, 0, 64))), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    }
    initiator.restart();
    std::fill(to.begin(), to.end(), std::uint8_t{0});
    EXPECT_TRUE(st::succeeded(run(write_to(second.address(), 100, 3000))));
    EXPECT_TRUE(has_data(100, 3100));
}

TEST_F(devx_dc, objects_in_use_stay) {
    EXPECT_EQ(mlx5dv_devx_obj_destroy(receives.get()), EBUSY) << "the targets take from it";
    st::devx_message not_a_step = first->command(prm::opcode::rst2init_qp);
    EXPECT_EQ(not_a_step.modify(first->get()), EINVAL) << "a target has no steps";
    st::devx_message drain = first->command(static_cast<prm::opcode>(0x712));
    EXPECT_EQ(drain.modify(first->get()), EINVAL) << "the driver drains by itself";
}

}  // namespace
