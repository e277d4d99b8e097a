// SPDX-License-Identifier: Apache-2.0
#include "model/settings.hpp"
#include "rig.hpp"

#include <array>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

using testing::piece;
using testing::rig;
using testing::seen_completion;
using testing::test_cq;
using testing::test_qp;

constexpr std::uint32_t qkey = 0x1111;

struct datagrams : ::testing::Test {
    rig on;
    test_cq cq{on.adapter};
    test_cq other_cq{on.adapter};
    test_qp qp{on.adapter, cq, cq, 1, qp_type::datagram};
    test_qp other{on.adapter, other_cq, other_cq, 1, qp_type::datagram};
    std::vector<std::uint8_t> from = std::vector<std::uint8_t>(5000, 9);
    std::vector<std::uint8_t> to = std::vector<std::uint8_t>(5000);
    std::uint32_t from_key = on.add_region(from);
    std::uint32_t to_key = on.add_region(to);
    seen_completion seen;

    datagrams() {
        testing::make_datagram_ready(on.adapter, *qp.qp, qkey);
        testing::make_datagram_ready(on.adapter, *other.qp, qkey);
    }

    void send(std::uint32_t length, std::uint32_t key = qkey, std::uint32_t to_qpn = 0, bool with_grh = false) {
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{qp.produced()} << 8 | MLX5_OPCODE_SEND_IMM);
        control.qpn_ds = htobe32(qp.qp->number << 8 | 5);
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        control.imm = htobe32(0xbeef);
        mlx5_wqe_av av{};
        av.key.qkey.qkey = htobe32(key);
        av.dqp_dct = htobe32(0x80000000u | (to_qpn == 0 ? other.qp->number : to_qpn));
        av.rlid = htobe16(1);
        if (with_grh) av.grh_gid_fl = htobe32(1u << 30);
        mlx5_wqe_data_seg data{htobe32(length), htobe32(from_key),
                               htobe64(reinterpret_cast<std::uint64_t>(from.data()))};
        std::array<std::byte, 80> bytes{};
        std::memcpy(bytes.data(), &control, 16);
        std::memcpy(bytes.data() + 16, &av, 48);
        std::memcpy(bytes.data() + 64, &data, 16);
        qp.post_raw(bytes);
        qp.ring();
        EXPECT_TRUE(on.settle());
    }
};

TEST_F(datagrams, a_datagram_arrives_after_forty_bytes) {
    other.post_receive(std::array{piece(to.data(), 2000, to_key)});
    send(1000);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_IMM);
    EXPECT_EQ(seen.bytes, 1040u);
    EXPECT_EQ(seen.immediate, 0xbeefu);
    EXPECT_EQ(to[39], 0);
    EXPECT_EQ(to[40], 9);
    EXPECT_EQ(to[1039], 9);
    EXPECT_EQ(to[1040], 0);
    EXPECT_TRUE(cq.poll(seen));
}

TEST_F(datagrams, a_datagram_brings_its_grh) {
    other.post_receive(std::array{piece(to.data(), 2000, to_key)});
    send(8, qkey, 0, true);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(to[0] >> 4, 6) << "version of an IPv6 header";
    EXPECT_EQ(to[8], 0xfe) << "source GID";
}

TEST_F(datagrams, lost_datagrams_cause_no_error) {
    send(100);
    EXPECT_TRUE(cq.poll(seen)) << "no receive posted: the sender is done all the same";
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ);
    other.post_receive(std::array{piece(to.data(), 2000, to_key)});
    send(100, qkey + 1);
    send(100, qkey, 0xfff);
    EXPECT_FALSE(other_cq.poll(seen)) << "wrong Q_Key, wrong queue pair";
    send(100);
    EXPECT_TRUE(other_cq.poll(seen));
}

TEST_F(datagrams, a_datagram_longer_than_the_mtu_is_a_local_error) {
    send(4097);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length));
    EXPECT_EQ(qp.qp->state, qp_state::error);
}

TEST_F(datagrams, a_short_receive_is_a_length_error_of_the_receiver) {
    other.post_receive(std::array{piece(to.data(), 100, to_key)});
    send(100);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length));
}

/// A linked list, as libmlx5 keeps it.
TEST(shared_receives, shared_receives_follow_their_links_and_report_their_limit) {
    constexpr std::uint32_t entries = 8;
    constexpr std::uint32_t shift = 6;
    std::vector<std::byte> buffer(entries << shift);
    alignas(8) std::uint32_t record = 0;
    for (std::uint16_t at = 0; at < entries; ++at) {
        mlx5_wqe_srq_next_seg link{};
        link.next_wqe_index = htobe16(static_cast<std::uint16_t>((at + 3) % entries));
        const mlx5_wqe_data_seg list[]{{htobe32(10u + at), htobe32(5), 0}, {0, htobe32(MLX5_INVALID_LKEY), 0}};
        std::memcpy(buffer.data() + (at << shift), &link, sizeof link);
        std::memcpy(buffer.data() + (at << shift) + sizeof link, list, sizeof list);
    }
    const auto events = std::make_shared<event_pipe>(event_pipe::kind::asynchronous);
    shared_receive_queue queue({1, 1, 0x99, 3, events}, {reinterpret_cast<std::uint64_t>(buffer.data()),
                                                         reinterpret_cast<std::uint64_t>(&record), entries, shift});
    receive_request got;
    EXPECT_EQ(queue.take(got), take_status::empty);
    record = htobe32(5);
    queue.arm_limit(4);
    EXPECT_FALSE(events->readable());
    std::vector<int> order;
    while (queue.take(got) == take_status::taken) {
        order.push_back(got.index);
        ASSERT_EQ(got.segments.size(), 1u);
        EXPECT_EQ(got.segments[0].length, 10u + got.index);
        EXPECT_EQ(events->readable(), order.size() > 1) << "three are left then, fewer than the limit";
    }
    EXPECT_EQ(order, (std::vector<int>{0, 3, 6, 1, 4}));
    EXPECT_EQ(events->take_back(0x99), 1u) << "once, when fewer than four were left";
    record = htobe32(1000);
    EXPECT_EQ(queue.take(got), take_status::overflow);
    ::close(events->read_descriptor());
}

}  // namespace
}  // namespace accel::softnic
