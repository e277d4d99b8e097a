// SPDX-License-Identifier: Apache-2.0
// Regions over memory that only a plugin reaches, and that is late: what GPU memory is for the device. What requests
// move there is in property_test.cpp.
#include "dma/guarded.hpp"
#include "hidden_memory.hpp"
#include "pair_fixture.hpp"

#include <array>

namespace accel::softnic {
namespace {

using testing::hidden_memory;
using testing::piece;
using testing::test_qp;
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

TEST_P(device_memory, long_messages_are_read_ahead_of_time) {
    run(device_to_device(MLX5_OPCODE_RDMA_WRITE, 30'000));
    EXPECT_EQ(source->fetches, 1);
    run(device_to_device(MLX5_OPCODE_RDMA_READ, 30'000));
    EXPECT_EQ(source->fetches, 2) << "another message: its bytes may be others";
}

INSTANTIATE_TEST_SUITE_P(mode, device_memory, ::testing::Values(0, 1, 2, 3), [](const auto& kind) {
    return kind.param == 0 ? std::string("plain") : "strict" + std::to_string(kind.param);
});

/// Which memory does what, in a request of one kind, and the errors of both ends. Strict mode hears of a lost write
/// after it has acknowledged it, as hardware would.
struct loss {
    std::uint8_t opcode;
    bool reads_fail;  ///< of the source; else writes to the target get lost
    syndrome expected;
    std::uint32_t event;
    syndrome received;
};

struct failing_memory : device_memory {};

TEST_P(failing_memory, memory_that_fails_is_an_error_of_who_uses_it) {
    for (const auto& [opcode, reads_fail, expected, event, received] :
         {loss{MLX5_OPCODE_RDMA_WRITE, true, syndrome::local_protection, no_event, syndrome::none},
          {MLX5_OPCODE_RDMA_READ, true, syndrome::remote_access, IBV_EVENT_QP_ACCESS_ERR, syndrome::none},
          {MLX5_OPCODE_RDMA_WRITE, false, syndrome::remote_operation, IBV_EVENT_QP_FATAL, syndrome::none},
          {MLX5_OPCODE_SEND, false, syndrome::remote_operation, no_event, syndrome::local_protection},
          {MLX5_OPCODE_RDMA_READ, false, syndrome::local_protection, no_event, syndrome::none}}) {
        SCOPED_TRACE(fmt::format("opcode {} {}", opcode, reads_fail));
        for (test_qp* each : {&qp, &other}) {
            qp_modification change;
            change.mask = IBV_QP_STATE;
            ASSERT_EQ(on.adapter.modify_qp(*each->qp, change), 0);
            each->restart();
        }
        testing::connect_pair(on.adapter, qp, other);
        source->refuse_reads = reads_fail;
        target->lose_writes = !reads_fail;
        if (opcode == MLX5_OPCODE_SEND) other.post_receive(std::array{of_target(0, 3000)});
        expect_error(run(device_to_device(opcode, 3000)), expected);
        EXPECT_EQ(next_event(), event);
        const bool local = event == no_event && received == syndrome::none;
        EXPECT_EQ(other.qp->state, local ? qp_state::ready_to_send : qp_state::error);
        ASSERT_EQ(other_cq.poll(seen), received != syndrome::none);
        if (received == syndrome::none) continue;
        EXPECT_EQ(seen.kind, MLX5_CQE_RESP_ERR);
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(received));
    }
}

INSTANTIATE_TEST_SUITE_P(plain, failing_memory, ::testing::Values(0));

}  // namespace
}  // namespace accel::softnic
