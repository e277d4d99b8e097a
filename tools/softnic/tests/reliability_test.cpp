// SPDX-License-Identifier: Apache-2.0
// RC when packets get lost, late or refused, and when the other side is gone: how often it tries again, and when.
// What arrives in the end is in property_test.cpp.
#include "pair_fixture.hpp"

#include <array>

namespace accel::softnic::reliability {
namespace {

using testing::connect_pair;
using testing::connected;
using testing::link_options;
using testing::pair;
using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;
using testing::work;

constexpr std::uint64_t resolution_ns = 10'000;  ///< of rig::settle()

/// As many tries as are allowed get lost, or one more.
void lose(int retry_count, int timeout_code, int lost_packets) {
    SCOPED_TRACE(fmt::format("{} retries, timeout {}, {} lost", retry_count, timeout_code, lost_packets));
    link_options how;
    how.timeout = static_cast<std::uint8_t>(timeout_code);
    how.retry_count = static_cast<std::uint8_t>(retry_count);
    const auto lost = static_cast<unsigned>(lost_packets);
    connected in(how);
    const auto& count = in.on.adapter.state.count;
    const std::uint64_t timeout =
        std::max(acknowledge_timeout_ns(how.timeout), in.on.adapter.state.config.shortest_timeout_ns);
    const bool enough = lost <= how.retry_count;
    for (unsigned round = 1; round <= 3; ++round) {  // each success gives all retries back
        in.on.adapter.state.faults.clear();
        if (lost != 0) in.on.add_fault(fmt::format("drop op=write count={}", lost));
        const std::uint64_t start = in.on.now;
        const std::uint16_t index = in.run(in.message(MLX5_OPCODE_RDMA_WRITE, 100));
        if (!enough) {
            in.expect_error(index, syndrome::transport_retry_exceeded);
            EXPECT_EQ(in.seen.vendor, 0x81);
            EXPECT_EQ(count.retransmissions, how.retry_count);
            EXPECT_EQ(count.timeouts, how.retry_count + 1u);
            EXPECT_GE(in.on.now - start, timeout * lost);
            EXPECT_LE(in.on.now - start, (timeout + 2 * resolution_ns) * lost);
            EXPECT_EQ(in.other.qp->state, qp_state::ready_to_send) << "the other side knows nothing of it";
            return;
        }
        in.expect_done(index);
        EXPECT_EQ(count.timeouts, round * lost);
        EXPECT_EQ(count.retransmissions, round * lost);
        EXPECT_GE(in.on.now - start, timeout * lost);
        EXPECT_LE(in.on.now - start, (timeout + 2 * resolution_ns) * lost + resolution_ns);
    }
}

TEST(retries, a_request_is_repeated_as_often_as_allowed_each_time_after_the_timeout) {
    for (const int retries : {0, 1, 3, 7}) {
        for (const int timeout : {1, 10, 12}) {
            lose(retries, timeout, 0);
            lose(retries, timeout, retries);
            lose(retries, timeout, retries + 1);
        }
    }
}

TEST_F(pair, a_timeout_of_zero_waits_for_ever) {
    qp.qp->attributes.timeout = 0;
    on.add_fault("drop nth=1 op=write");
    qp.post(message(MLX5_OPCODE_RDMA_WRITE, 100));
    qp.ring();
    EXPECT_FALSE(on.settle());
    EXPECT_FALSE(cq.poll(seen));
    EXPECT_EQ(on.adapter.state.count.timeouts, 0u);
}

/// Times at which refusals went out, until `last` of them or the end of the queue pair.
std::vector<std::uint64_t> refusals(connected& in, std::uint64_t last) {
    std::vector<std::uint64_t> times;
    const std::uint64_t end = in.on.now + 2'000'000'000;
    while (in.on.now < end && times.size() < last && in.qp.qp->state == qp_state::ready_to_send) {
        in.on.step(5'000);
        if (in.on.adapter.state.count.naks_sent > times.size()) times.push_back(in.on.now);
    }
    return times;
}

/// A receive is posted after so many refusals.
void make_wait(int allowed, int timer, int refused) {
    SCOPED_TRACE(fmt::format("{} allowed, timer {}, {} refused", allowed, timer, refused));
    constexpr int for_ever = 7;
    link_options how;
    how.timeout = 16;  // longer than each wait
    how.rnr_retry = static_cast<std::uint8_t>(allowed);
    how.rnr_timer = static_cast<std::uint8_t>(timer);
    connected in(how);
    const std::uint16_t index = in.qp.post(in.message(MLX5_OPCODE_SEND, 100));
    in.qp.ring();
    const auto times = refusals(in, static_cast<std::uint64_t>(refused));
    ASSERT_EQ(times.size(), static_cast<std::size_t>(refused));
    for (std::size_t at = 1; at < times.size(); ++at) {
        EXPECT_GE(times[at] - times[at - 1], rnr_wait_ns(how.rnr_timer));
        EXPECT_LE(times[at] - times[at - 1], rnr_wait_ns(how.rnr_timer) + 15'000);
    }
    const std::uint64_t start = in.on.now;
    in.other.post_receive(std::array{piece(in.to.data(), 100, in.to_key)});
    ASSERT_TRUE(in.on.settle());
    if (refused > allowed && allowed != for_ever) {
        in.expect_error(index, syndrome::rnr_retry_exceeded);
        EXPECT_EQ(in.seen.vendor, 0x87);
        EXPECT_FALSE(in.other_cq.poll(in.seen));
        EXPECT_EQ(in.other.qp->state, qp_state::ready_to_send) << "the other side has done nothing wrong";
        return;
    }
    in.expect_done(index);
    EXPECT_TRUE(in.other_cq.poll(in.seen));
    EXPECT_GE(in.on.now - start, rnr_wait_ns(how.rnr_timer)) << "not before the time is over";
    EXPECT_EQ(in.on.adapter.state.count.timeouts, 0u);
}

TEST(retries, a_receiver_that_is_not_ready_is_asked_again_as_often_as_allowed_each_time_after_its_timer) {
    for (const int timer : {3, 12, 20}) {
        for (const int allowed : {0, 1, 2, 6}) {
            if (allowed != 0) make_wait(allowed, timer, allowed);
            make_wait(allowed, timer, allowed + 1);
        }
        make_wait(7, timer, 20);
    }
}

TEST_F(pair, the_end_of_receivers_wait_gives_new_retries) {
    qp.qp->attributes.rnr_retry = 1;
    for (int round = 0; round < 3; ++round) {
        const std::uint16_t index = qp.post(message(MLX5_OPCODE_SEND, 100));
        qp.ring();
        const std::uint64_t before = on.adapter.state.count.naks_sent;
        while (on.adapter.state.count.naks_sent == before) on.step(1'000);
        other.post_receive(std::array{piece(to.data(), 100, to_key)});
        ASSERT_TRUE(on.settle());
        expect_done(index);
        ASSERT_TRUE(other_cq.poll(seen));
    }
}

struct injected {
    const char* rule;
    syndrome expected;
};

TEST(injected_faults, injected_faults_are_the_errors_that_they_name) {
    for (const auto& [rule, expected] : {injected{"nak:access nth=2", syndrome::remote_access},
                                         {"nak:invalid nth=2", syndrome::remote_invalid_request},
                                         {"nak:operation nth=2", syndrome::remote_operation},
                                         {"local_protection nth=2", syndrome::local_protection},
                                         {"error:0x22 nth=2", syndrome::remote_aborted},
                                         {"qp_error nth=2", syndrome::flushed}}) {
        SCOPED_TRACE(rule);
        connected in;
        in.on.add_fault(rule);
        const std::uint16_t good = in.qp.post(in.message(MLX5_OPCODE_RDMA_WRITE, 100));
        const std::uint16_t bad = in.qp.post(in.message(MLX5_OPCODE_RDMA_WRITE, 100));
        in.qp.ring();
        ASSERT_TRUE(in.on.settle());
        if (expected != syndrome::flushed) in.expect_done(good);
        if (expected != syndrome::flushed) in.expect_error(bad, expected);
        EXPECT_EQ(in.qp.qp->state, qp_state::error);
        EXPECT_EQ(in.on.adapter.state.faults.fired(), 1u);
    }
    connected in;
    in.on.add_fault("cq_overrun nth=1");
    in.run(in.message(MLX5_OPCODE_RDMA_WRITE, 10));
    EXPECT_TRUE(in.cq.queue->failed());
    EXPECT_EQ(in.qp.qp->state, qp_state::error);
}

TEST(injected_faults, a_port_comes_up_at_the_time_of_its_rule) {
    for (const std::uint64_t outage_us : {10'000u, 200'000u}) {
        link_options how;
        how.timeout = outage_us == 10'000 ? 11 : 14;  // 8.4 ms, 67 ms
        how.retry_count = 3;
        connected in(how);
        in.on.add_fault(fmt::format("port_down nth=1 us={}", outage_us));
        const port& mine = in.on.adapter.state.devices[0].ports()[0];
        const std::uint64_t start = in.on.now;
        const std::uint16_t index = in.qp.post(in.message(MLX5_OPCODE_RDMA_WRITE, 100));
        in.qp.ring();
        in.on.step();
        while (!mine.up && in.on.now < start + 1'000'000'000) in.on.step();
        EXPECT_GE(in.on.now - start, outage_us * 1'000);
        EXPECT_LE(in.on.now - start, outage_us * 1'000 + 3'000);
        ASSERT_TRUE(in.on.settle());
        in.expect_done(index);
        EXPECT_EQ(in.on.now / acknowledge_timeout_ns(how.timeout),
                  outage_us * 1'000 / acknowledge_timeout_ns(how.timeout) + 1)
            << "with the first try after it";
    }
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
    ASSERT_TRUE(settle(std::array{&mine, theirs.get()}));
    seen_completion seen;
    ASSERT_TRUE(cq.poll(seen));
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

}  // namespace
}  // namespace accel::softnic::reliability
