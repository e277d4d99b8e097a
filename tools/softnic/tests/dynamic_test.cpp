// SPDX-License-Identifier: Apache-2.0
// Dynamically connected transport, on virtual time: which connection a message takes, and what ends one.
#include "transport/dynamic.hpp"

#include "rig.hpp"

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

namespace accel::softnic::dynamic_connections {
namespace {

using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;

constexpr std::uint64_t right_key = 0xabcdef0123456789;

/// A shared receive queue as libmlx5 lays it out: each element names the next.
class test_srq {
  public:
    static constexpr std::uint32_t entries = 16;

    test_srq() {
        for (std::uint32_t at = 0; at < entries; ++at) {
            mlx5_wqe_srq_next_seg link{};
            link.next_wqe_index = htobe16(static_cast<std::uint16_t>((at + 1) % entries));
            std::memcpy(buffer_.data() + at * stride, &link, sizeof link);
        }
        queue = std::make_shared<shared_receive_queue>(
            shared_receive_queue::identity{1, 1, 0, 1, nullptr},
            receive_queue_options{reinterpret_cast<std::uint64_t>(buffer_.data()),
                                  reinterpret_cast<std::uint64_t>(&record_), entries, 5});
    }
    void post(const segment& piece) {
        const mlx5_wqe_data_seg data{htobe32(piece.length), htobe32(piece.lkey), htobe64(piece.address)};
        std::memcpy(buffer_.data() + (posted_ % entries) * stride + 16, &data, sizeof data);
        record_ = htobe32(++posted_);
    }

    [[nodiscard]] std::uint32_t posted() const { return posted_; }

    std::shared_ptr<shared_receive_queue> queue;

  private:
    static constexpr std::uint32_t stride = 32;
    std::vector<std::byte> buffer_ = std::vector<std::byte>(entries * stride);
    alignas(8) std::uint32_t record_ = 0;
    std::uint16_t posted_ = 0;
};

struct message {
    std::uint8_t opcode = MLX5_OPCODE_RDMA_WRITE;
    std::uint32_t target = 0;
    std::uint64_t key = right_key;
    segment local;
    std::uint64_t remote = 0;
    std::uint32_t rkey = 0;
    std::uint32_t immediate = 0;
};

/// Two initiators, and two targets that share a completion queue and receives.
struct dynamic_pair : ::testing::Test {
    static constexpr std::size_t bytes = 1 << 16;
    rig on;
    std::shared_ptr<event_pipe> events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    test_cq cqs[2]{test_cq(on.adapter, 256), test_cq(on.adapter, 256)};
    test_cq target_cq{on.adapter, 256};
    test_srq srq;
    test_qp first{on.adapter, cqs[0], cqs[0], 1, qp_type::dynamic_initiator};
    test_qp second{on.adapter, cqs[1], cqs[1], 1, qp_type::dynamic_initiator};
    test_qp* initiators[2]{&first, &second};
    queue_pair* targets[2]{make_target(), make_target()};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(bytes);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(bytes);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    dynamic_pair() {
        std::mt19937 random(1);
        for (auto& byte : from) byte = static_cast<std::uint8_t>(random());
        for (test_qp* each : initiators) make_ready(*each);
    }
    ~dynamic_pair() override {
        for (queue_pair* each : targets)
            if (each != nullptr) on.adapter.destroy_qp(*each);
        ::close(events->read_descriptor());
    }

    void step(queue_pair& which, qp_state next, std::uint32_t mask, qp_modification change = {}) {
        change.next = next;
        change.mask = mask | IBV_QP_STATE;
        EXPECT_EQ(on.adapter.modify_qp(which, change), 0);
    }
    void make_ready(test_qp& initiator) {
        qp_modification change;
        change.values.path_mtu = 1;
        change.values.timeout = 10;
        change.values.retry_count = 7;
        change.values.rnr_retry = 7;
        change.values.max_rd_atomic = 4;
        change.values.send_psn = 0xfffffa;
        step(*initiator.qp, qp_state::initialised, IBV_QP_PKEY_INDEX | IBV_QP_PORT, change);
        step(*initiator.qp, qp_state::ready_to_receive, IBV_QP_PATH_MTU, change);
        step(*initiator.qp, qp_state::ready_to_send,
             IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN, change);
    }
    queue_pair* make_target() {
        queue_pair_options options;
        options.type = qp_type::dynamic_target;
        options.pd = 1;
        options.user_index = 0x555;
        options.access_key = right_key;
        options.receive_cq = target_cq.queue;
        options.shared_receives = srq.queue;
        options.asynchronous = events;
        queue_pair* made = on.adapter.create_qp(0, std::move(options));
        qp_modification change;
        change.values.access = 0xf;
        change.values.path_mtu = 1;
        change.values.min_rnr_timer = 1;
        change.values.destination.dlid = 1;
        step(*made, qp_state::initialised, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, change);
        step(*made, qp_state::ready_to_receive, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, change);
        return made;
    }

    /// From `offset` to the same place at the other side.
    [[nodiscard]] message write(std::uint32_t target, std::uint32_t offset, std::uint32_t length) const {
        message what;
        what.target = target;
        what.local = testing::piece(from.data() + offset, length, from_key);
        what.remote = reinterpret_cast<std::uint64_t>(to.data()) + offset;
        what.rkey = to_key;
        return what;
    }
    static std::uint16_t post(test_qp& by, const message& what) {
        std::vector<std::byte> bytes(16);
        const auto append = [&](const auto& part) {
            const auto* first = reinterpret_cast<const std::byte*>(&part);
            bytes.insert(bytes.end(), first, first + sizeof part);
        };
        mlx5_wqe_av av{};
        av.key.dc_key = htobe64(what.key);
        av.dqp_dct = htobe32(0x80000000u | what.target);
        av.rlid = htobe16(1);
        append(av);
        if (what.opcode != MLX5_OPCODE_SEND_IMM)
            append(mlx5_wqe_raddr_seg{htobe64(what.remote), htobe32(what.rkey), 0});
        if (what.opcode == MLX5_OPCODE_ATOMIC_FA) append(mlx5_wqe_atomic_seg{htobe64(1), 0});
        append(mlx5_wqe_data_seg{htobe32(what.local.length), htobe32(what.local.lkey), htobe64(what.local.address)});
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{by.produced()} << 8 | what.opcode);
        control.qpn_ds = htobe32(by.qp->number << 8 | static_cast<std::uint32_t>(bytes.size() / 16));
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        control.imm = htobe32(what.immediate);
        std::memcpy(bytes.data(), &control, sizeof control);
        return by.post_raw(bytes);
    }
    void run() {
        for (test_qp* each : initiators) each->ring();
        EXPECT_TRUE(on.settle());
    }
    void expect_served(std::size_t target, std::uint32_t length) {
        const std::uint16_t index = post(first, write(targets[target]->number, 0, length));
        run();
        expect_done(0, index);
        EXPECT_TRUE(std::equal(to.begin(), to.begin() + length, from.begin()));
    }
    void expect_done(std::size_t initiator, std::uint16_t index) {
        ASSERT_TRUE(cqs[initiator].poll(seen));
        ASSERT_EQ(seen.kind, MLX5_CQE_REQ) << "syndrome " << int{seen.syndrome};
        EXPECT_EQ(seen.index, index);
    }
};

/// Writes, sends, reads and atomics of both initiators to both targets, several at once, over a way that loses, doubles
/// and reorders. Each is done once; those of one initiator in their order.
TEST_F(dynamic_pair, each_message_is_done_once_by_its_own_target_whatever_gets_lost) {
    std::mt19937_64 random(3);
    std::vector<std::uint64_t> counter(1);
    const std::uint32_t counter_key = on.add_region(counter);
    std::vector<std::uint8_t> back(16'000);
    const std::uint32_t back_key = on.add_region(back);
    std::vector<std::uint8_t> inbox(test_srq::entries * 1000);
    const std::uint32_t inbox_key = on.add_region(inbox);
    std::uint64_t added = 0;
    std::uint32_t sent = 0;
    for (int round = 0; round < 150; ++round) {
        if (round == 50) on.add_fault("drop p=0.1 seed=3; duplicate p=0.1 seed=4; reorder p=0.1 seed=5");
        std::deque<std::pair<std::size_t, std::uint16_t>> posted;
        std::deque<std::pair<std::size_t, std::size_t>> reads;
        std::map<std::uint32_t, std::uint32_t> wanted;  // by immediate value: bytes
        for (std::size_t count = 0; count < 8; ++count) {
            const std::size_t by = random() % 2;
            const auto length = static_cast<std::uint32_t>(1 + random() % 1000);
            message what =
                write(targets[random() % 2]->number, static_cast<std::uint32_t>(by * 8 + count) * 1000, length);
            if (random() % 3 == 0) {
                what.opcode = MLX5_OPCODE_SEND_IMM;
                wanted[what.immediate = ++sent] = length;
                if (random() % 2 == 0) srq.post(testing::piece(inbox.data(), 1000, inbox_key));
            } else if (random() % 3 == 0) {
                what.opcode = MLX5_OPCODE_ATOMIC_FA;
                what.local.length = 8;
                what.local.address = reinterpret_cast<std::uint64_t>(from.data()) + 60'000;
                what.remote = reinterpret_cast<std::uint64_t>(counter.data());
                what.rkey = counter_key;
                ++added;
            }
            posted.push_back({by, post(*initiators[by], what)});
            if (what.opcode != MLX5_OPCODE_RDMA_WRITE || random() % 2 == 0) continue;
            message read = what;  // what has just been written
            read.opcode = MLX5_OPCODE_RDMA_READ;
            read.local = testing::piece(back.data() + (by * 8 + count) * 1000, length, back_key);
            posted.push_back({by, post(*initiators[by], read)});
            reads.push_back({(by * 8 + count) * 1000, length});
        }
        for (test_qp* each : initiators) each->ring();
        for (int steps = 0; steps < 30; ++steps) on.step(1'000);
        while (srq.posted() < sent) srq.post(testing::piece(inbox.data(), 1000, inbox_key));
        run();
        for (const auto& [by, index] : posted) expect_done(by, index);
        for (const auto& [at, size] : reads) ASSERT_EQ(std::memcmp(back.data() + at, from.data() + at, size), 0);
        for (std::size_t count = wanted.size(); count > 0; --count) {
            ASSERT_TRUE(target_cq.poll(seen));
            EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_IMM);
            EXPECT_EQ(seen.user_index, 0x555u);
            const auto found = wanted.find(seen.immediate);
            ASSERT_NE(found, wanted.end()) << "twice, or never sent";
            EXPECT_EQ(seen.bytes, found->second);
            wanted.erase(found);
        }
        ASSERT_EQ(counter[0], added);
        if (HasFailure()) return;
    }
    for (const queue_pair* each : targets) EXPECT_EQ(each->dynamic.connections.size(), 2u);
    EXPECT_FALSE(events->readable());
}

/// The target serves on, also the initiator that failed.
TEST_F(dynamic_pair, what_fails_is_the_connection_of_one_initiator) {
    test_qp plain(on.adapter, target_cq, target_cq, 1);
    testing::connect(on.adapter, *plain.qp, first.qp->number);
    struct row {
        const char* name;
        std::function<void(message&)> spoil;
        syndrome expected;
    };
    for (const auto& [name, spoil, expected] :
         {row{"a wrong access key", [](message& what) { what.key ^= 1; }, syndrome::remote_access},
          row{"a wrong key", [](message& what) { what.rkey ^= 0x100; }, syndrome::remote_access},
          row{"nobody", [](message& what) { what.target = 0xfff0; }, syndrome::transport_retry_exceeded},
          row{"another kind", [&](message& what) { what.target = plain.qp->number; },
              syndrome::transport_retry_exceeded}}) {
        SCOPED_TRACE(name);
        std::fill(to.begin(), to.end(), std::uint8_t{0});
        message bad = write(targets[0]->number, 0, 1000);
        spoil(bad);
        const std::uint16_t index = post(first, bad);
        const std::uint16_t after = post(first, write(targets[1]->number, 2000, 1000));
        const std::uint16_t other = post(second, write(targets[0]->number, 4000, 1000));
        run();
        for (const auto& [which, why] : {std::pair{index, expected}, {after, syndrome::flushed}}) {
            ASSERT_TRUE(cqs[0].poll(seen));
            EXPECT_EQ(seen.kind, MLX5_CQE_REQ_ERR);
            EXPECT_EQ(seen.index, which);
            EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(why));
        }
        expect_done(1, other);
        EXPECT_TRUE(std::all_of(to.begin(), to.begin() + 4000, [](auto byte) { return byte == 0; }));
        EXPECT_EQ(targets[0]->state, qp_state::ready_to_receive);
        EXPECT_FALSE(events->readable()) << "nothing has happened to the target";
        step(*first.qp, qp_state::reset, 0);
        first.restart();
        make_ready(first);
        expect_served(0, 1000);
    }
}

TEST_F(dynamic_pair, a_packet_of_an_earlier_connection_is_dropped) {
    expect_served(0, 100);
    packet_header old{};
    old.kind = packet_kind::write;
    old.flags = packet_flag::first | packet_flag::last | packet_flag::ack_request;
    old.from = {0, 1};
    old.from_qpn = first.qp->number;
    old.to_qpn = targets[0]->number;
    old.access_key = right_key;
    const queue_pair& end = *targets[0]->dynamic.connections.begin()->second;
    old.first_psn = old.psn = end.responder.expected_psn;
    const std::uint32_t expected = end.responder.expected_psn;
    for (const std::uint64_t session : {first.qp->dynamic.session - 1, std::uint64_t{0}}) {
        old.session = session;
        softnic::dynamic::on_request(on.adapter.state, *targets[0], arrival{old, {}});
        EXPECT_EQ(end.responder.expected_psn, expected) << "one that says nothing of a connection, or of an old one";
        EXPECT_TRUE(end.responder.replies.empty());
    }
    old.session = first.qp->dynamic.session;
    softnic::dynamic::on_request(on.adapter.state, *targets[0], arrival{old, {}});
    EXPECT_NE(end.responder.expected_psn, expected);
}

TEST_F(dynamic_pair, a_destroyed_target_forgets_its_connections) {
    expect_served(0, 100);
    on.adapter.destroy_qp(*std::exchange(targets[0], nullptr));
    for (const queue_pair* each : on.adapter.state.scheduled) EXPECT_FALSE(each->dynamic.is_connection);
    EXPECT_TRUE(on.settle());
}

}  // namespace
}  // namespace accel::softnic::dynamic_connections
