// SPDX-License-Identifier: Apache-2.0
// Regions over memory that only a plugin reaches, and that is late: what GPU memory is for the device.
#include "dma/guarded.hpp"
#include "hidden_memory.hpp"
#include "pair_fixture.hpp"

#include <array>

namespace accel::softnic {
namespace {

using testing::hidden_memory;
using testing::piece;
using testing::work;

/// Mode: 0 as always; else strict, with this seed.
struct device_memory : testing::pair, ::testing::WithParamInterface<int> {
    static constexpr std::size_t size = 40'000;
    std::shared_ptr<hidden_memory> source = std::make_shared<hidden_memory>(size);
    std::shared_ptr<hidden_memory> target = std::make_shared<hidden_memory>(size);
    std::uint32_t source_key = add(source);
    std::uint32_t target_key = add(target);

    void SetUp() override {
        on.adapter.state.config.strict = GetParam() != 0;
        on.adapter.state.random.seed(static_cast<std::uint64_t>(GetParam()));
        refill(1);
    }
    std::uint32_t add(const std::shared_ptr<hidden_memory>& memory) {
        const auto address = reinterpret_cast<std::uint64_t>(memory->address());
        return on.adapter.state.devices[0].regions.add({0, 1, address, size, address, 0xf, false, memory}).key;
    }
    void refill(std::uint8_t seed) const {
        for (std::size_t at = 0; at < size; ++at) source->bytes()[at] = byte(seed, at);
        std::fill(target->bytes().begin(), target->bytes().end(), std::uint8_t{0xee});
    }
    static std::uint8_t byte(std::uint8_t seed, std::size_t at) {
        return static_cast<std::uint8_t>(seed * 31 + at * 7 + (at >> 8));
    }
    static std::uint64_t address(const std::shared_ptr<hidden_memory>& memory, std::size_t at = 0) {
        return reinterpret_cast<std::uint64_t>(memory->address()) + at;
    }
    [[nodiscard]] segment of_source(std::uint32_t at, std::uint32_t length) const {
        return {address(source, at), length, source_key, false};
    }
    [[nodiscard]] segment of_target(std::uint32_t at, std::uint32_t length) const {
        return {address(target, at), length, target_key, false};
    }
    [[nodiscard]] work device_to_device(std::uint8_t opcode, std::uint32_t length) const {
        work what;
        what.opcode = opcode;
        const bool reads = opcode == MLX5_OPCODE_RDMA_READ;
        what.pieces = {reads ? of_target(3, length) : of_source(5, length)};
        what.remote = reads ? address(source, 5) : address(target, 3);
        what.rkey = reads ? source_key : target_key;
        return what;
    }
    void expect_moved(std::uint8_t seed, std::uint32_t length) const {
        for (std::size_t at = 0; at < length; ++at)
            ASSERT_EQ(target->bytes()[3 + at], byte(seed, 5 + at)) << at << " of " << length;
        EXPECT_EQ(target->bytes()[2], 0xee);
        EXPECT_EQ(target->bytes()[3 + length], 0xee);
    }
};

TEST_P(device_memory, writes_reads_and_sends_move_device_memory) {
    std::uint8_t seed = 1;
    for (const auto opcode : {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_SEND}) {
        for (const std::uint32_t length : {1u, 8u, 255u, 256u, 257u, 3000u, 30'000u}) {
            refill(++seed);
            if (opcode == MLX5_OPCODE_SEND) other.post_receive(std::array{of_target(3, length)});
            run(device_to_device(static_cast<std::uint8_t>(opcode), length));
            ASSERT_TRUE(cq.poll(seen));
            ASSERT_EQ(seen.kind, MLX5_CQE_REQ);
            expect_moved(seed, length);
            EXPECT_EQ(target->waiting(), 0u);
            if (opcode == MLX5_OPCODE_SEND) {
                ASSERT_TRUE(other_cq.poll(seen));
            }
        }
    }
}

TEST_P(device_memory, completions_are_never_ahead_of_the_data) {
    for (std::uint8_t round = 2; round < 40; ++round) {
        refill(round);
        other.post_receive({});
        qp.post(device_to_device(MLX5_OPCODE_RDMA_WRITE_IMM, 2000));
        qp.ring();
        while (!other_cq.poll(seen)) on.step(100);
        expect_moved(round, 2000);
        ASSERT_TRUE(on.settle());
        ASSERT_TRUE(cq.poll(seen));
        work read = device_to_device(MLX5_OPCODE_RDMA_READ, 3000);
        qp.post(read);
        qp.ring();
        while (!cq.poll(seen)) on.step(100);
        expect_moved(round, 3000);
        ASSERT_TRUE(on.settle());
    }
}

TEST_P(device_memory, a_flag_is_never_ahead_of_the_data) {
    for (std::uint8_t round = 2; round < 40; ++round) {
        refill(round);
        qp.post(device_to_device(MLX5_OPCODE_RDMA_WRITE, 2000));
        work flag = device_to_device(MLX5_OPCODE_RDMA_WRITE, 1);
        flag.remote = address(target, 20'000);
        qp.post(flag);
        qp.ring();
        while (target->bytes()[20'000] == 0xee) on.step(100);
        expect_moved(round, 2000);
        ASSERT_TRUE(on.settle());
        while (cq.poll(seen)) ASSERT_EQ(seen.kind, MLX5_CQE_REQ);
    }
}

TEST_P(device_memory, segments_of_both_kinds_mix_with_inline_data) {
    other.post_receive(std::array{of_target(100, 50), piece(to.data(), 1000, to_key), of_target(1000, 3000)});
    work what;
    what.opcode = MLX5_OPCODE_SEND;
    what.inlined.assign(30, std::byte{0xaa});
    what.pieces = {of_source(0, 700), piece(from.data(), 600, from_key), of_source(5000, 900)};
    run(what);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.bytes, 2230u);
    std::vector<std::uint8_t> wanted(30, 0xaa);
    for (std::size_t at = 0; at < 700; ++at) wanted.push_back(byte(1, at));
    wanted.insert(wanted.end(), from.begin(), from.begin() + 600);
    for (std::size_t at = 0; at < 900; ++at) wanted.push_back(byte(1, 5000 + at));
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.begin() + 50, target->bytes().begin() + 100));
    EXPECT_TRUE(std::equal(wanted.begin() + 50, wanted.begin() + 1050, to.begin()));
    EXPECT_TRUE(std::equal(wanted.begin() + 1050, wanted.end(), target->bytes().begin() + 1000));
}

TEST_P(device_memory, atomics_work_in_device_memory) {
    const std::uint64_t start = 40;
    std::memcpy(target->bytes().data() + 64, &start, 8);
    work add;
    add.opcode = MLX5_OPCODE_ATOMIC_FA;
    add.pieces = {of_source(8, 8)};
    add.remote = address(target, 64);
    add.rkey = target_key;
    add.swap_or_add = 2;
    run(add);
    ASSERT_TRUE(cq.poll(seen));
    std::uint64_t value = 0;
    std::memcpy(&value, source->bytes().data() + 8, 8);
    EXPECT_EQ(value, 40u);
    std::memcpy(&value, target->bytes().data() + 64, 8);
    EXPECT_EQ(value, 42u);
}

TEST_P(device_memory, loss_changes_nothing) {
    std::string problem;
    const auto rules = parse_fault_rules("drop p=0.05 seed=9", problem);
    ASSERT_TRUE(rules) << problem;
    for (const auto& rule : *rules) on.adapter.state.faults.add(rule);
    for (std::uint8_t round = 2; round < 12; ++round) {
        refill(round);
        run(device_to_device(round % 2 == 0 ? MLX5_OPCODE_RDMA_WRITE : MLX5_OPCODE_RDMA_READ, 30'000));
        ASSERT_TRUE(cq.poll(seen));
        ASSERT_EQ(seen.kind, MLX5_CQE_REQ);
        expect_moved(round, 30'000);
    }
    EXPECT_GT(on.adapter.state.faults.fired(), 0u);
}

TEST_P(device_memory, long_messages_are_read_ahead_of_time) {
    run(device_to_device(MLX5_OPCODE_RDMA_WRITE, 30'000));
    EXPECT_EQ(source->fetches, 1);
    run(device_to_device(MLX5_OPCODE_RDMA_READ, 30'000));
    EXPECT_EQ(source->fetches, 2) << "another message: its bytes may be others";
}

TEST_P(device_memory, a_source_that_cannot_be_read_is_a_protection_error) {
    source->refuse_reads = true;
    expect_error(run(device_to_device(MLX5_OPCODE_RDMA_WRITE, 3000)), syndrome::local_protection);
}

TEST_P(device_memory, a_remote_source_that_cannot_be_read_is_refused) {
    source->refuse_reads = true;
    expect_error(run(device_to_device(MLX5_OPCODE_RDMA_READ, 3000)), syndrome::remote_access);
}

INSTANTIATE_TEST_SUITE_P(mode, device_memory, ::testing::Values(0, 1, 2, 3), [](const auto& kind) {
    return kind.param == 0 ? std::string("plain") : "strict" + std::to_string(kind.param);
});

/// Strict mode hears of a lost write after it has acknowledged it, as hardware would.
struct losing_memory : device_memory {};

TEST_P(losing_memory, a_lost_write_is_an_error_at_both_ends) {
    target->lose_writes = true;
    expect_error(run(device_to_device(MLX5_OPCODE_RDMA_WRITE, 3000)), syndrome::remote_operation);
    EXPECT_EQ(other.qp->state, qp_state::error);
    EXPECT_EQ(next_event(), static_cast<std::uint32_t>(IBV_EVENT_QP_FATAL));
}

TEST_P(losing_memory, a_lost_receive_is_an_error_at_both_ends) {
    target->lose_writes = true;
    other.post_receive(std::array{of_target(0, 3000)});
    expect_error(run(device_to_device(MLX5_OPCODE_SEND, 3000)), syndrome::remote_operation);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_protection));
}

TEST_P(losing_memory, a_lost_answer_is_a_protection_error) {
    target->lose_writes = true;
    expect_error(run(device_to_device(MLX5_OPCODE_RDMA_READ, 3000)), syndrome::local_protection);
}

INSTANTIATE_TEST_SUITE_P(plain, losing_memory, ::testing::Values(0));

}  // namespace
}  // namespace accel::softnic
