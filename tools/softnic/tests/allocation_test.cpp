// SPDX-License-Identifier: Apache-2.0
// The device works inside a program that may count its own allocations: in steady state there are none.
#include "counting_new.hpp"
#include "pair_fixture.hpp"

namespace accel::softnic {
namespace {

using testing::piece;
using testing::work;

struct allocation : testing::pair {
    /// What the device allocates from the doorbell to the last completion.
    std::uint64_t allocated_by(const work& what) {
        qp.post(what);
        const std::uint64_t before = testing::allocations();
        qp.ring();
        EXPECT_TRUE(on.settle());
        const std::uint64_t taken = testing::allocations() - before;
        EXPECT_TRUE(cq.poll(seen));
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
        return taken;
    }
    /// Each opcode and length once.
    std::uint64_t one_of_each() {
        std::uint64_t taken = 0;
        for (const std::uint32_t length : {8u, 600u, 5000u}) {
            taken += allocated_by(message(MLX5_OPCODE_RDMA_WRITE, length));
            taken += allocated_by(message(MLX5_OPCODE_RDMA_READ, length));
            for (const std::uint8_t opcode : {MLX5_OPCODE_SEND, MLX5_OPCODE_RDMA_WRITE_IMM}) {
                other.post_receive({{piece(to.data(), 5000, to_key)}});
                taken += allocated_by(message(opcode, length));
                EXPECT_TRUE(other_cq.poll(seen));
            }
        }
        work inlined = message(MLX5_OPCODE_RDMA_WRITE, 0);
        inlined.inlined.resize(200);
        taken += allocated_by(inlined);
        taken += allocated_by(message(MLX5_OPCODE_ATOMIC_FA, 8));
        return taken;
    }
};

/// Rounds after which every place of the requester's ring has seen every kind of work request.
constexpr int warm_up = 64;

TEST_F(allocation, steady_state_allocates_nothing_with_retransmissions_or_without) {
    const std::uint64_t before = testing::allocations();
    on.add_region(from);
    ASSERT_GT(testing::allocations(), before) << "they are not counted";
    for (const char* faults : {"", "drop p=0.02 seed=5"}) {
        on.add_fault(faults);
        for (int round = 0; round < warm_up; ++round) one_of_each();
        for (int round = 0; round < 75; ++round) ASSERT_EQ(one_of_each(), 0u) << "round " << round;
    }
    EXPECT_GT(on.adapter.state.count.retransmissions, 0u);
}

}  // namespace
}  // namespace accel::softnic
