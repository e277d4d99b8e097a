// SPDX-License-Identifier: Apache-2.0
// Masked atomics and operands of 4 bytes, and DUMP.
#include "dma/atomic.hpp"

#include "pair_fixture.hpp"

#include <array>

namespace accel::softnic {
namespace {

using testing::pair;
using testing::piece;
using testing::work;

constexpr std::uint8_t opcode_of_dump = 0x23;

TEST(atomic_operations, masks_choose_bits_and_boundaries_stop_carries) {
    atomic_operation swap;
    swap.compare_swap = true;
    swap.swap_or_add = 0x1234;
    swap.compare = 0xff00;
    swap.compare_mask = 0xf000;
    swap.swap_mask = 0x00ff;
    EXPECT_EQ(swap.apply(0xfabc), 0xfa34u) << "equal under the mask";
    EXPECT_EQ(swap.apply(0xeabc), 0xeabcu) << "not equal under the mask";
    atomic_operation add;
    add.swap_or_add = 0x01ff;
    EXPECT_EQ(add.apply(0x0001), 0x0200u);
    add.boundary = 0x80;
    EXPECT_EQ(add.apply(0x0001), 0x0100u) << "the carry out of bit 7 is dropped";
    add.boundary = ~0ull;
    EXPECT_EQ(add.apply(0x0101), 0x00feu) << "every bit alone: exclusive or";
}

struct atomics : pair {
    alignas(8) std::array<std::uint32_t, 4> words{0x11111111, 0x22222222, 0x33333333, 0x44444444};
    alignas(8) std::array<std::uint32_t, 4> answers{};
    std::uint32_t words_key = on.add_region(words.data(), sizeof words, 1, 0xf);
    std::uint32_t answers_key = on.add_region(answers.data(), sizeof answers, 1, 0xf);

    work atomic(std::uint8_t opcode, std::size_t word, std::uint32_t bytes) {
        work what;
        what.opcode = opcode;
        what.operand_bytes = bytes;
        what.pieces = {piece(answers.data(), bytes, answers_key)};
        what.remote = reinterpret_cast<std::uint64_t>(&words[word]);
        what.rkey = words_key;
        return what;
    }
    void expect_done(const work& what) {
        const std::uint16_t index = run(what);
        ASSERT_TRUE(cq.poll(seen));
        ASSERT_EQ(seen.kind, MLX5_CQE_REQ);
        EXPECT_EQ(seen.index, index);
        EXPECT_EQ(seen.opcode, what.opcode);
        EXPECT_EQ(seen.bytes, what.operand_bytes);
    }
};

TEST_F(atomics, four_bytes_change_alone_and_come_back_in_network_order) {
    for (const std::size_t word : {1u, 2u}) {
        auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, word, 4);
        add.swap_or_add = 0xffffffff;
        const std::uint32_t before = words[word];
        expect_done(add);
        EXPECT_EQ(words[word], before - 1);
        EXPECT_EQ(be32toh(answers[0]), before);
        EXPECT_EQ(answers[1], 0u) << "no more than four bytes";
    }
    EXPECT_EQ(words[0], 0x11111111u);
    EXPECT_EQ(words[3], 0x44444444u);
}

TEST_F(atomics, four_bytes_are_swapped_under_their_masks) {
    auto swap = atomic(MLX5_OPCODE_ATOMIC_MASKED_CS, 3, 4);
    swap.compare = 0x44000000;
    swap.compare_mask = 0xff000000;
    swap.swap_or_add = 0x0000abcd;
    swap.swap_mask = 0x0000ffff;
    expect_done(swap);
    EXPECT_EQ(words[3], 0x4444abcdu);
    EXPECT_EQ(words[2], 0x33333333u);
    swap.compare = 0;
    expect_done(swap);
    EXPECT_EQ(words[3], 0x4444abcdu) << "not equal: not swapped";
    EXPECT_EQ(be32toh(answers[0]), 0x4444abcdu);
}

TEST_F(atomics, eight_bytes_are_swapped_and_added_under_their_masks) {
    std::uint64_t before = 0;
    std::memcpy(&before, words.data(), sizeof before);
    auto swap = atomic(MLX5_OPCODE_ATOMIC_MASKED_CS, 0, 8);
    swap.compare = before;
    swap.swap_or_add = 0xffff0000ffff0000;
    swap.swap_mask = 0xffffffff00000000;
    expect_done(swap);
    std::uint64_t after = 0;
    std::memcpy(&after, words.data(), sizeof after);
    EXPECT_EQ(after, (before & 0xffffffff) | 0xffff000000000000);
    auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, 0, 8);
    add.swap_or_add = 0xf000'0000'0000'0000 + 0xf000'0000;
    add.boundary = 0x8000'0000;
    expect_done(add);
    std::uint64_t answer = 0;
    std::memcpy(&answer, answers.data(), sizeof answer);
    EXPECT_EQ(answer, after) << "in the order of the host";
    std::memcpy(&before, words.data(), sizeof before);
    EXPECT_EQ(before & 0xffffffff, (after + 0xf000'0000) & 0xffffffff);
    EXPECT_EQ(before >> 32, ((after >> 32) + 0xf000'0000) & 0xffffffff) << "no carry from below";
}

TEST_F(atomics, lost_answers_do_not_repeat_a_masked_add) {
    std::string problem;
    const auto rules = parse_fault_rules("drop op=atomic_response nth=1", problem);
    ASSERT_TRUE(rules) << problem;
    on.adapter.state.faults.add(rules->front());
    auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, 1, 4);
    add.swap_or_add = 1;
    expect_done(add);
    EXPECT_EQ(words[1], 0x22222223u);
    EXPECT_EQ(be32toh(answers[0]), 0x22222222u);
}

TEST_F(atomics, misaligned_or_foreign_operands_are_refused) {
    auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, 0, 4);
    add.remote += 2;
    expect_error(run(add), syndrome::remote_invalid_request);
    EXPECT_EQ(words[0], 0x11111111u);
}

TEST_F(atomics, four_bytes_at_the_end_of_a_region_may_be_used_and_no_more) {
    auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, 1, 4);
    add.rkey = on.add_region(words.data(), 8, 1, 0xf);
    add.swap_or_add = 1;
    expect_done(add);
    EXPECT_EQ(words[1], 0x22222223u);
    add.remote += 4;
    expect_error(run(add), syndrome::remote_access);
    EXPECT_EQ(words[2], 0x33333333u);
}

TEST_F(atomics, an_answer_of_another_size_than_the_operand_is_malformed) {
    auto add = atomic(MLX5_OPCODE_ATOMIC_MASKED_FA, 0, 4);
    add.pieces = {piece(answers.data(), 8, answers_key)};
    expect_error(run(add), syndrome::local_qp_operation);
}

TEST_F(pair, a_dump_completes_in_its_order_and_sends_nothing) {
    work silent = message(MLX5_OPCODE_RDMA_WRITE, 1000);
    silent.signalled = false;
    qp.post(silent);
    work dump = message(opcode_of_dump, 64);
    const std::uint64_t sent = on.adapter.state.count.packets_sent;
    const std::uint16_t index = run(dump);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    EXPECT_EQ(seen.index, index);
    EXPECT_TRUE(std::equal(from.begin(), from.begin() + 1000, to.begin())) << "what came before is there";
    const std::uint64_t with_write = on.adapter.state.count.packets_sent - sent;
    run(silent);
    EXPECT_EQ(on.adapter.state.count.packets_sent - sent, 2 * with_write) << "the write's packets only";
}

TEST_F(pair, a_dump_of_memory_that_it_may_not_read_is_a_protection_error) {
    work dump = message(opcode_of_dump, 64);
    dump.pieces[0].lkey += 1;
    expect_error(run(dump), syndrome::local_protection);
}

}  // namespace
}  // namespace accel::softnic
