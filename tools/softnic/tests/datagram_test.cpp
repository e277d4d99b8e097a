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

/// A receive of exactly this size, or one byte less.
TEST_F(datagrams, a_datagram_arrives_after_forty_bytes_which_are_its_grh_if_it_has_one) {
    for (const std::uint32_t length : {1u, 8u, 1000u, 4096u}) {
        for (const bool with_grh : {false, true}) {
            std::fill(to.begin(), to.end(), std::uint8_t{0});
            other.post_receive(std::array{piece(to.data(), 40 + length, to_key)});
            send(length, qkey, 0, with_grh);
            ASSERT_TRUE(other_cq.poll(seen));
            EXPECT_EQ(seen.kind, MLX5_CQE_RESP_SEND_IMM);
            EXPECT_EQ(seen.bytes, 40 + length);
            EXPECT_EQ(seen.immediate, 0xbeefu);
            EXPECT_EQ(to[0] >> 4, with_grh ? 6 : 0) << "version of an IPv6 header";
            EXPECT_EQ(to[4] << 8 | to[5], with_grh ? static_cast<int>(length + 24) : 0) << "its length";
            EXPECT_EQ(to[8], with_grh ? 0xfe : 0) << "source GID";
            EXPECT_TRUE(std::equal(to.begin() + 40, to.begin() + 40 + length, from.begin()));
            EXPECT_EQ(to[40 + length], 0);
            EXPECT_TRUE(cq.poll(seen));
        }
    }
    other.post_receive(std::array{piece(to.data(), 139, to_key)});
    send(100);
    ASSERT_TRUE(other_cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length));
    EXPECT_EQ(other.qp->state, qp_state::error);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.kind, MLX5_CQE_REQ) << "the sender hears nothing of it";
    send(4097);
    ASSERT_TRUE(cq.poll(seen));
    EXPECT_EQ(seen.syndrome, static_cast<std::uint8_t>(syndrome::local_length)) << "longer than a packet";
    EXPECT_EQ(qp.qp->state, qp_state::error);
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

/// A linked list, as libmlx5 keeps it; or one element behind another, as programs of DevX may.
TEST(shared_receives, shared_receives_follow_their_order_and_report_their_limit_once) {
    constexpr std::uint32_t entries = 8;
    constexpr std::uint32_t shift = 6;
    for (const bool cyclic : {false, true}) {
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
        receive_queue_options ring{reinterpret_cast<std::uint64_t>(buffer.data()),
                                   reinterpret_cast<std::uint64_t>(&record), entries, shift};
        ring.cyclic = cyclic;
        shared_receive_queue queue({1, 1, 0x99, 3, events}, ring);
        receive_request got;
        EXPECT_EQ(queue.take(got), take_status::empty);
        for (std::uint16_t taken = 0; taken < 20; ++taken) {
            if (taken % 5 == 0) {
                record = htobe32(taken + 5u);
                queue.arm_limit(4);
                EXPECT_FALSE(events->readable());
            }
            ASSERT_EQ(queue.take(got), take_status::taken);
            EXPECT_EQ(got.index, cyclic ? taken : taken * 3 % entries);
            ASSERT_EQ(got.segments.size(), 1u);
            EXPECT_EQ(got.segments[0].length, 10u + got.index % entries);
            EXPECT_EQ(events->readable(), taken % 5 != 0) << "fewer than four are left";
            EXPECT_EQ(taken % 5 == 4 ? events->take_back(0x99) : 1u, 1u);
        }
        record = htobe32(20 + entries + 1);
        EXPECT_EQ(queue.take(got), take_status::overflow);
        ::close(events->read_descriptor());
    }
}

}  // namespace
}  // namespace accel::softnic
