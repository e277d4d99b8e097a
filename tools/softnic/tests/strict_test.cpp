// SPDX-License-Identifier: Apache-2.0
// Strict mode: late where hardware may be late. That it is never late where hardware may not: property_test.cpp.
#include "rig.hpp"

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

TEST(strict, a_request_may_complete_before_its_data_is_visible_in_strict_mode_alone) {
    int late = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        strict_pair run(seed);
        run.on.adapter.state.config.strict = seed % 2 == 0;
        run.qp.post(run.write());
        run.qp.ring();
        while (!run.cq.poll(run.seen)) run.on.step(100);
        if (run.to[99] != 5) ++late;
        EXPECT_TRUE(run.to[99] == 5 || seed % 2 == 0);
        ASSERT_TRUE(run.on.settle());
        EXPECT_EQ(run.to[99], 5) << "late is not never";
    }
    EXPECT_GT(late, 10) << "strict mode delayed nothing";
}

/// What lies behind its last segment belongs to nobody.
TEST(strict, traps_a_work_request_that_changes_after_its_doorbell) {
    for (std::uint64_t seed = 1; seed <= 64; ++seed) {  // each byte of the block
        strict_pair run(seed);
        const std::uint16_t index = run.qp.post(run.write());
        run.qp.ring();
        run.qp.block(index)[seed - 1] ^= std::byte{1};
        ASSERT_TRUE(run.on.settle());
        ASSERT_TRUE(run.cq.poll(run.seen));
        const bool meant = seed <= 48;
        EXPECT_EQ(run.seen.vendor, meant ? static_cast<std::uint8_t>(vendor_syndrome::late_wqe) : 0) << seed;
        EXPECT_EQ(run.on.adapter.state.count.late_wqes, meant ? 1u : 0u);
    }
}

}  // namespace
}  // namespace accel::softnic
