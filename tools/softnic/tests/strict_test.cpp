// SPDX-License-Identifier: Apache-2.0
// Strict mode: late where hardware may be late, never where it may not.
#include "rig.hpp"

#include <array>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

namespace accel::softnic {
namespace {

using testing::connect_pair;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

settings strict_settings(std::uint64_t seed) {
    settings chosen;
    chosen.strict = true;
    chosen.seed = seed;
    return chosen;
}

struct strict_pair {
    explicit strict_pair(std::uint64_t seed) : on(strict_settings(seed)) { connect_pair(on.adapter, qp, other); }

    rig on;
    test_cq cq{on.adapter, 256};
    test_cq other_cq{on.adapter, 256};
    test_qp qp{on.adapter, cq, cq, 1};
    test_qp other{on.adapter, other_cq, other_cq, 1};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(100, 5);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(100);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    work write(std::uint8_t opcode = MLX5_OPCODE_RDMA_WRITE) {
        work what;
        what.opcode = opcode;
        what.pieces = {piece(from.data(), 100, from_key)};
        what.remote = reinterpret_cast<std::uint64_t>(to.data());
        what.rkey = to_key;
        return what;
    }
};

TEST(strict, a_request_may_complete_before_its_data_is_visible) {
    int late = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        strict_pair run(seed);
        run.qp.post(run.write());
        run.qp.ring();
        while (!run.cq.poll(run.seen)) run.on.step(100);
        if (run.to[99] != 5) ++late;
        ASSERT_TRUE(run.on.settle());
        EXPECT_EQ(run.to[99], 5) << "late is not never";
    }
    EXPECT_GT(late, 10) << "strict mode delayed nothing";
}

TEST(strict, a_receive_completion_is_never_ahead_of_its_data) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        strict_pair run(seed);
        run.other.post_receive({});
        run.qp.post(run.write());
        run.qp.post(run.write(MLX5_OPCODE_RDMA_WRITE_IMM));
        run.qp.ring();
        while (!run.other_cq.poll(run.seen)) run.on.step(100);
        EXPECT_EQ(run.to[99], 5);
    }
}

TEST(strict, a_read_is_never_ahead_of_an_earlier_write) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        strict_pair run(seed);
        std::vector<std::uint8_t> back(100);
        const std::uint32_t back_key = run.on.add_region(back);
        run.qp.post(run.write());
        work read = run.write(MLX5_OPCODE_RDMA_READ);
        read.pieces = {piece(back.data(), 100, back_key)};
        run.qp.post(read);
        run.qp.ring();
        ASSERT_TRUE(run.on.settle());
        EXPECT_EQ(back[99], 5);
    }
}

TEST(strict, traps_a_work_request_that_changes_after_its_doorbell) {
    int caught = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        strict_pair run(seed);
        const std::uint16_t index = run.qp.post(run.write());
        run.qp.ring();
        run.qp.block(index)[20] ^= std::byte{1};
        ASSERT_TRUE(run.on.settle());
        ASSERT_TRUE(run.cq.poll(run.seen));
        if (run.seen.vendor == static_cast<std::uint8_t>(vendor_syndrome::late_wqe)) ++caught;
    }
    EXPECT_EQ(caught, 20);
}

TEST(strict, bytes_after_a_work_request_may_change) {
    strict_pair run(1);
    const std::uint16_t index = run.qp.post(run.write());
    run.qp.ring();
    run.qp.block(index)[63] ^= std::byte{1};  // ds covers 48 bytes
    ASSERT_TRUE(run.on.settle());
    ASSERT_TRUE(run.cq.poll(run.seen));
    EXPECT_EQ(run.seen.kind, MLX5_CQE_REQ);
}

TEST(strict, data_is_not_late_without_strict_mode) {
    strict_pair run(1);
    run.on.adapter.state.config.strict = false;
    run.qp.post(run.write());
    run.qp.ring();
    while (!run.cq.poll(run.seen)) run.on.step(100);
    EXPECT_EQ(run.to[99], 5);
}

}  // namespace
}  // namespace accel::softnic
