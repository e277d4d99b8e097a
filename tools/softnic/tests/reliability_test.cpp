// SPDX-License-Identifier: Apache-2.0
// RC when packets get lost, doubled, late, out of order, or refused; and when the other side is gone.
#include "rig.hpp"

#include <array>
#include <numeric>

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

using testing::connect_pair;
using testing::link_options;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

struct lossy : ::testing::Test {
    rig on;
    test_cq cq{on.adapter, 1024};
    test_cq other_cq{on.adapter, 1024};
    test_qp qp{on.adapter, cq, cq, 1};
    test_qp other{on.adapter, other_cq, other_cq, 1};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(60000);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(60000);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    lossy() {
        for (std::size_t at = 0; at < from.size(); ++at) from[at] = static_cast<std::uint8_t>(at * 31 + (at >> 8));
    }
    void add_fault(const char* text) {
        std::string problem;
        const auto rules = parse_fault_rules(text, problem);
        ASSERT_TRUE(rules) << problem;
        for (const auto& rule : *rules) on.adapter.state.faults.add(rule);
    }
    work message(std::uint8_t opcode, std::uint32_t length, std::uint32_t offset = 0) {
        work what;
        what.opcode = opcode;
        what.pieces = {piece(from.data() + offset, length, from_key)};
        what.remote = reinterpret_cast<std::uint64_t>(to.data() + offset);
        what.rkey = to_key;
        return what;
    }
    syndrome fails_with(const work& what) {
        qp.post(what);
        qp.ring();
        EXPECT_TRUE(on.settle());
        if (!cq.poll(seen)) return syndrome::none;
        return static_cast<syndrome>(seen.syndrome);
    }
};

struct loss_case {
    const char* name;
    const char* faults;
};

void PrintTo(const loss_case& of, std::ostream* to) {
    *to << of.faults;
}

struct lossy_messages : lossy, ::testing::WithParamInterface<loss_case> {};

/// Everything arrives, once, in order, whatever the way does to it.
TEST_P(lossy_messages, all_operations_survive) {
    link_options how;
    how.retry_count = 7;
    connect_pair(on.adapter, qp, other, how);
    add_fault(GetParam().faults);
    alignas(8) std::uint64_t counter = 0;
    alignas(8) std::uint64_t brought = 0;
    const std::uint32_t counter_key = on.add_region(&counter, 8, 1, 0xf);
    const std::uint32_t brought_key = on.add_region(&brought, 8, 1, 0xf);
    std::vector<std::uint8_t> received(60000);
    std::vector<std::uint8_t> read_back(60000);
    const std::uint32_t received_key = on.add_region(received);
    const std::uint32_t read_key = on.add_region(read_back);
    for (std::uint32_t round = 0; round < 20; ++round) {
        const std::uint32_t offset = round * 3000;
        other.post_receive(std::array{piece(received.data() + offset, 3000, received_key)});
        qp.post(message(MLX5_OPCODE_RDMA_WRITE, 3000, offset));
        qp.post(message(MLX5_OPCODE_SEND, 2999, offset));
        work add;
        add.opcode = MLX5_OPCODE_ATOMIC_FA;
        add.pieces = {piece(&brought, 8, brought_key)};
        add.remote = reinterpret_cast<std::uint64_t>(&counter);
        add.rkey = counter_key;
        add.swap_or_add = 1;
        qp.post(add);
        work read = message(MLX5_OPCODE_RDMA_READ, 3000, offset);
        read.pieces = {piece(read_back.data() + offset, 3000, read_key)};
        qp.post(read);
        qp.ring();
        ASSERT_TRUE(on.settle());
        for (int count = 0; count < 4; ++count) {
            ASSERT_TRUE(cq.poll(seen)) << round;
            ASSERT_EQ(seen.kind, MLX5_CQE_REQ) << "syndrome " << int{seen.syndrome};
        }
        ASSERT_TRUE(other_cq.poll(seen));
        EXPECT_EQ(seen.bytes, 2999u);
        EXPECT_FALSE(other_cq.poll(seen)) << "received twice";
        EXPECT_EQ(counter, round + 1) << "an atomic done twice, or not at all";
        EXPECT_EQ(brought, round);
    }
    EXPECT_EQ(to, from);
    EXPECT_EQ(read_back, from);
    EXPECT_GT(on.adapter.state.faults.fired(), 0u) << "the test tested nothing";
}

INSTANTIATE_TEST_SUITE_P(
    faults, lossy_messages,
    ::testing::Values(loss_case{"few", "drop p=0.01 seed=3"}, loss_case{"many", "drop p=0.1 seed=4"},
                      loss_case{"acks", "drop p=0.3 op=ack seed=5"},
                      loss_case{"read_responses", "drop p=0.2 op=read_response seed=6"},
                      loss_case{"atomic_responses", "drop p=0.3 op=atomic_response seed=6"},
                      loss_case{"naks", "drop p=0.3 op=nak seed=1;drop p=0.05"},
                      loss_case{"duplicates", "duplicate p=0.2 seed=7"}, loss_case{"reordered", "reorder p=0.1 seed=8"},
                      loss_case{"delayed", "delay p=0.1 us=3000 seed=9"},
                      loss_case{"not_ready", "nak:rnr p=0.1 seed=10"},
                      loss_case{"out_of_sequence", "nak:sequence p=0.1 seed=11"},
                      loss_case{"everything", "drop p=0.03 seed=12;duplicate p=0.05 seed=13;reorder p=0.05 seed=14"}),
    [](const auto& of) { return of.param.name; });

TEST_F(lossy, a_silent_peer_is_a_retry_error_after_all_retries) {
    link_options how;
    how.timeout = 12;
    how.retry_count = 3;
    connect_pair(on.adapter, qp, other, how);
    add_fault("drop op=write");
    const std::uint64_t start = on.now;
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::transport_retry_exceeded);
    EXPECT_EQ(seen.vendor, 0x81);
    const std::uint64_t timeout = acknowledge_timeout_ns(12);
    EXPECT_GE(on.now - start, 4 * timeout) << "one try and three retries";
    EXPECT_EQ(on.adapter.state.count.timeouts, 4u);
    EXPECT_EQ(on.adapter.state.count.retransmissions, 3u);
}

TEST_F(lossy, a_queue_pair_without_retries_fails_at_the_first_loss) {
    link_options how;
    how.retry_count = 0;
    connect_pair(on.adapter, qp, other, how);
    add_fault("drop nth=1 op=write");
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::transport_retry_exceeded);
}

TEST_F(lossy, progress_gives_new_retries) {
    link_options how;
    how.retry_count = 1;
    connect_pair(on.adapter, qp, other, how);
    add_fault("drop nth=1 op=write;drop nth=3 op=write;drop nth=5 op=write");
    for (int count = 0; count < 3; ++count) {
        EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::none);
        EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    }
    EXPECT_EQ(on.adapter.state.count.timeouts, 3u) << "one for each, never two in a row";
}

TEST_F(lossy, a_queue_pair_that_does_not_exist_is_a_retry_error) {
    testing::connect(on.adapter, *qp.qp, 0xabcde);
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::transport_retry_exceeded);
}

TEST_F(lossy, a_timeout_of_zero_waits_for_ever) {
    link_options how;
    how.timeout = 0;
    connect_pair(on.adapter, qp, other, how);
    add_fault("drop nth=1 op=write");
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 100));
    qp.ring();
    EXPECT_FALSE(on.settle(100'000'000'000));
    EXPECT_FALSE(cq.poll(seen));
}

TEST_F(lossy, receiver_not_ready_waits_for_its_timer_and_retries) {
    link_options how;
    how.rnr_timer = 20;  // 10.24 ms
    connect_pair(on.adapter, qp, other, how);
    qp.post(message(MLX5_OPCODE_SEND, 100));
    qp.ring();
    for (int count = 0; count < 900; ++count) on.step(10'000);
    EXPECT_EQ(on.adapter.state.count.naks_sent, 1u);
    other.post_receive(std::array{piece(to.data(), 100, to_key)});
    for (int count = 0; count < 50; ++count) on.step(10'000);
    EXPECT_FALSE(cq.poll(seen)) << "not before the time is over";
    for (int count = 0; count < 200; ++count) on.step(10'000);
    EXPECT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
}

TEST_F(lossy, receiver_not_ready_retries_are_counted) {
    link_options how;
    how.rnr_retry = 2;
    connect_pair(on.adapter, qp, other, how);
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_SEND, 100)), syndrome::rnr_retry_exceeded);
    EXPECT_EQ(on.adapter.state.count.naks_sent, 3u) << "one try and two retries";
    EXPECT_EQ(other.qp->state, qp_state::ready_to_send) << "the other side has done nothing wrong";
}

TEST_F(lossy, injected_refusals_become_their_completion_errors) {
    const std::pair<const char*, syndrome> cases[]{{"nak:access nth=1", syndrome::remote_access},
                                                   {"nak:invalid nth=1", syndrome::remote_invalid_request},
                                                   {"nak:operation nth=1", syndrome::remote_operation},
                                                   {"local_protection nth=1", syndrome::local_protection},
                                                   {"error:0x22 nth=1", syndrome::remote_aborted}};
    for (const auto& [text, expected] : cases) {
        test_qp one(on.adapter, cq, cq, 1);
        test_qp two(on.adapter, other_cq, other_cq, 1);
        connect_pair(on.adapter, one, two);
        on.adapter.state.faults.clear();
        add_fault(text);
        one.post(message(MLX5_OPCODE_RDMA_WRITE, 100));
        one.ring();
        ASSERT_TRUE(on.settle());
        ASSERT_TRUE(cq.poll(seen)) << text;
        EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(expected)) << text;
    }
}

TEST_F(lossy, fault_rules_cause_queue_pair_errors_and_overruns) {
    connect_pair(on.adapter, qp, other);
    add_fault("qp_error nth=2");
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    qp.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_EQ(qp.qp->state, qp_state::error);
    test_qp one(on.adapter, cq, cq, 1);
    test_qp two(on.adapter, other_cq, other_cq, 1);
    connect_pair(on.adapter, one, two);
    on.adapter.state.faults.clear();
    add_fault("cq_overrun nth=1");
    one.post(message(MLX5_OPCODE_RDMA_WRITE, 10));
    one.ring();
    ASSERT_TRUE(on.settle());
    EXPECT_TRUE(cq.queue->failed());
    EXPECT_EQ(one.qp->state, qp_state::error);
}

TEST_F(lossy, a_short_outage_of_the_port_is_survived) {
    link_options how;
    how.timeout = 14;
    connect_pair(on.adapter, qp, other, how);
    add_fault("port_down nth=1 us=200000");
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::none) << "within the retries";
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    EXPECT_TRUE(on.adapter.state.devices[0].ports()[0].up);
    EXPECT_GT(on.now, 200'000'000u);
}

/// Answers to repetitions wait beside the first ones; only new requests count against the limit.
TEST_F(lossy, repeated_atomics_do_not_count_against_the_limit) {
    link_options how;
    how.reads = 16;
    connect_pair(on.adapter, qp, other, how);
    add_fault("drop p=0.05 seed=21");
    alignas(8) std::uint64_t counter = 0;
    alignas(8) std::uint64_t brought = 0;
    work what;
    what.opcode = MLX5_OPCODE_ATOMIC_FA;
    what.pieces = {piece(&brought, 8, on.add_region(&brought, 8, 1, 0xf))};
    what.remote = reinterpret_cast<std::uint64_t>(&counter);
    what.rkey = on.add_region(&counter, 8, 1, 0xf);
    what.swap_or_add = 1;
    constexpr std::uint64_t rounds = 100;
    constexpr std::uint64_t together = 60;
    for (std::uint64_t round = 0; round < rounds; ++round) {
        for (std::uint64_t at = 0; at < together; ++at) qp.post(what);
        qp.ring();
        ASSERT_TRUE(on.settle());
        while (cq.poll(seen)) ASSERT_EQ(seen.kind, MLX5_CQE_REQ) << "syndrome " << int{seen.syndrome};
    }
    EXPECT_EQ(counter, rounds * together);
}

TEST_F(lossy, a_port_comes_up_at_the_time_of_its_rule) {
    link_options how;
    how.timeout = 11;  // 8.4 ms
    how.retry_count = 3;
    connect_pair(on.adapter, qp, other, how);
    add_fault("port_down nth=1 us=10000");
    EXPECT_EQ(fails_with(message(MLX5_OPCODE_RDMA_WRITE, 100)), syndrome::none);
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    EXPECT_LT(on.now, 30'000'000u);
}

/// Two nodes of one fabric: the second one dies.
TEST(peers, a_dead_process_is_a_retry_error) {
    rig mine;
    auto theirs = std::make_unique<rig>(settings{}, fabric::join_peer(*mine.adapter.state.net));
    test_cq cq(mine.adapter);
    test_qp qp(mine.adapter, cq, cq, 1);
    std::vector<std::uint8_t> bytes(100, 7);
    std::vector<std::uint8_t> target(100);
    const std::uint32_t key = mine.add_region(bytes);
    const std::uint32_t target_key = theirs->add_region(target);
    auto their_cq = std::make_unique<test_cq>(theirs->adapter);
    auto their_qp = std::make_unique<test_qp>(theirs->adapter, *their_cq, *their_cq, 1);
    testing::connect(mine.adapter, *qp.qp, their_qp->qp->number);
    testing::connect(theirs->adapter, *their_qp->qp, qp.qp->number);
    work what;
    what.opcode = MLX5_OPCODE_RDMA_WRITE;
    what.pieces = {piece(bytes.data(), 100, key)};
    what.remote = reinterpret_cast<std::uint64_t>(target.data());
    what.rkey = target_key;
    qp.post(what);
    qp.ring();
    seen_completion seen;
    for (int count = 0; count < 100 && !cq.poll(seen); ++count) {
        mine.step();
        theirs->step();
    }
    EXPECT_EQ(target[99], 7);
    their_qp.reset();
    their_cq.reset();
    theirs.reset();
    qp.post(what);
    qp.ring();
    ASSERT_TRUE(mine.settle());
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::transport_retry_exceeded));
}

/// Nothing in a packet from another process is believed.
TEST(peers, garbage_packets_do_no_harm) {
    rig mine;
    const auto attacker = fabric::join_peer(*mine.adapter.state.net);
    test_cq cq(mine.adapter);
    test_qp one(mine.adapter, cq, cq, 1);
    test_qp two(mine.adapter, cq, cq, 1);
    connect_pair(mine.adapter, one, two);
    std::mt19937_64 random(1);
    for (int count = 0; count < 200'000; ++count) {
        packet* slot = attacker->reserve(mine.adapter.state.node());
        ASSERT_NE(slot, nullptr);
        auto* bytes = reinterpret_cast<std::uint64_t*>(&slot->header);
        for (std::size_t at = 0; at < sizeof slot->header / 8; ++at) bytes[at] = random();
        if (count % 2 == 0) {
            slot->header.to = {0, 1};
            slot->header.from = {0, 1};
            slot->header.to_qpn = one.qp->number;
            slot->header.from_qpn = two.qp->number;
            slot->header.kind = static_cast<packet_kind>(random() % 10);
            slot->header.psn = one.qp->responder.expected_psn;
            slot->header.payload_bytes = static_cast<std::uint16_t>(random() % 300);
        }
        attacker->commit(mine.adapter.state.node());
        mine.step();
        if (one.qp->state == qp_state::error) {
            qp_modification change;
            change.mask = IBV_QP_STATE;
            ASSERT_EQ(mine.adapter.modify_qp(*one.qp, change), 0);
            testing::connect(mine.adapter, *one.qp, two.qp->number);
        }
    }
}

}  // namespace
}  // namespace accel::softnic
