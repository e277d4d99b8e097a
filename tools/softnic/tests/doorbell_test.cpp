// SPDX-License-Identifier: Apache-2.0
// Doorbells of many queues that share one page.
#include "rig.hpp"

#include <array>
#include <memory>
#include <vector>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr std::size_t many = 1000;
constexpr std::size_t max_looks = uar_page::users_at_once + 1;

/// Queue pairs on one page. The first and the last are connected to each other.
struct doorbells : ::testing::Test {
    rig on;
    int file = ::memfd_create("uverbs", MFD_CLOEXEC);
    uar_page& page = on.adapter.add_uar(file);
    std::byte* registers = static_cast<std::byte*>(
        ::mmap(nullptr, uar_page::bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, std::int64_t{page.number()} * 4096));
    test_cq cq{on.adapter, 256};
    std::vector<std::unique_ptr<test_qp>> qps;
    std::array<std::uint8_t, 64> memory{};
    std::uint32_t key = on.add_region(memory.data(), memory.size(), 1, 0xf);

    doorbells() {
        for (std::size_t count = 0; count < many; ++count) {
            qps.push_back(std::make_unique<test_qp>(on.adapter, cq, cq, 1));
            qps.back()->qp->options.uar_page = page.number();
            page.add(*qps.back()->qp);
        }
        testing::connect_pair(on.adapter, *qps.front(), *qps.back());
    }
    ~doorbells() override {
        ::munmap(registers, uar_page::bytes);
        ::close(file);
    }

    void post(test_qp& from) {
        work what;
        what.opcode = MLX5_OPCODE_RDMA_WRITE;
        what.pieces = {testing::piece(memory.data(), 8, key)};
        what.remote = reinterpret_cast<std::uint64_t>(memory.data() + 32);
        what.rkey = key;
        from.post(what);
    }
    void write_register(std::uint32_t offset, std::uint64_t value) {
        std::memcpy(registers + offset, &value, sizeof value);
    }
    /// As MMIO: the first 8 bytes of a control segment.
    void ring(const test_qp& which) {
        write_register(0x800,
                       std::uint64_t{htobe32(which.qp->number << 8 | 3)} << 32 | htobe32(MLX5_OPCODE_RDMA_WRITE));
    }
    std::size_t completions() {
        std::size_t count = 0;
        for (seen_completion one; cq.poll(one);) ++count;
        return count;
    }
};

TEST_F(doorbells, a_doorbell_costs_only_the_queue_that_rang) {
    post(*qps.back());
    ring(*qps.back());
    on.step();
    EXPECT_EQ(completions(), 1u) << "the named one is served at once";
    EXPECT_LE(on.adapter.state.count.doorbell_looks, max_looks);
}

TEST_F(doorbells, an_overwritten_doorbell_is_found_later) {
    post(*qps.back());
    ring(*qps.back());
    post(*qps.front());
    ring(*qps.front());
    EXPECT_TRUE(on.adapter.has_something_to_do());
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(completions(), 2u);
    EXPECT_FALSE(on.adapter.has_something_to_do());
}

TEST_F(doorbells, a_doorbell_with_an_unknown_number_is_for_all_queues) {
    post(*qps.back());
    write_register(0xb00, ~std::uint64_t{0});
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(completions(), 1u);
}

TEST_F(doorbells, a_doorbell_of_a_destroyed_queue_pair_is_ignored) {
    post(*qps[3]);
    ring(*qps[3]);
    on.step();
    qps.erase(qps.begin() + 1, qps.end() - 5);
    post(*qps.back());
    ring(*qps.back());
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(completions(), 1u);
}

TEST_F(doorbells, arming_a_completion_queue_costs_only_that_queue) {
    std::vector<std::unique_ptr<test_cq>> queues;
    for (std::size_t count = 0; count < many; ++count) queues.push_back(std::make_unique<test_cq>(on.adapter));
    write_register(uar_page::arm_offset, htobe64(std::uint64_t{queues.back()->queue->number()}));
    on.step();
    EXPECT_LE(on.adapter.state.count.doorbell_looks, max_looks);
    ASSERT_TRUE(on.settle());
    EXPECT_GE(on.adapter.state.count.doorbell_looks, many) << "all others might have rang before";
}

}  // namespace
}  // namespace accel::softnic
