// SPDX-License-Identifier: Apache-2.0
#include "wqe/completion.hpp"
#include "wqe/send_request.hpp"

#include <cstring>

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

namespace accel::softnic {
namespace {

constexpr std::uint32_t qpn = 0x123;
constexpr std::uint16_t index = 0xfffe;

/// Bytes of a WQE, built up by segments.
class wqe_bytes {
  public:
    explicit wqe_bytes(std::uint8_t opcode) { head_.opmod_idx_opcode = htobe32(std::uint32_t{index} << 8 | opcode); }

    template <class T>
    wqe_bytes& add(const T& segment) {
        const std::size_t before = bytes_.size();
        bytes_.resize(before + sizeof segment);
        std::memcpy(bytes_.data() + before, &segment, sizeof segment);
        return *this;
    }
    wqe_bytes& add_inline(std::size_t size, std::uint32_t claimed) {
        add(htobe32(claimed | MLX5_INLINE_SEG));
        for (std::size_t at = 0; at < size; ++at) bytes_.push_back(static_cast<std::byte>(at));
        bytes_.resize((bytes_.size() + 15) & ~std::size_t{15});
        return *this;
    }
    std::vector<std::byte> build(int ds = -1, std::uint32_t queue = qpn) {
        const auto units = ds >= 0 ? static_cast<std::uint32_t>(ds) : static_cast<std::uint32_t>(bytes_.size() / 16);
        head_.qpn_ds = htobe32(queue << 8 | units);
        std::memcpy(bytes_.data(), &head_, sizeof head_);
        return bytes_;
    }
    mlx5_wqe_ctrl_seg head_{};

  private:
    std::vector<std::byte> bytes_ = std::vector<std::byte>(sizeof head_);  // room for the head, put in last
};

mlx5_wqe_raddr_seg remote() {
    return {htobe64(0x1000), htobe32(0x77), 0};
}
mlx5_wqe_data_seg data(std::uint32_t length) {
    return {htobe32(length), htobe32(0x55), htobe64(0x2000)};
}

decode_status decode(const std::vector<std::byte>& bytes, send_request& out, bool datagram = false) {
    return decode_send(bytes, {qpn, index, datagram, false}, out);
}

TEST(send_wqe, a_write_with_a_pointer_is_decoded) {
    send_request out;
    wqe_bytes wqe(MLX5_OPCODE_RDMA_WRITE);
    wqe.head_.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_FENCE;
    ASSERT_EQ(decode(wqe.add(remote()).add(data(100)).build(), out), decode_status::ok);
    EXPECT_EQ(out.kind, operation::write);
    EXPECT_EQ(out.remote_address, 0x1000u);
    EXPECT_EQ(out.rkey, 0x77u);
    EXPECT_EQ(out.length, 100u);
    EXPECT_EQ(out.index, index);
    EXPECT_TRUE(out.signalled);
    EXPECT_TRUE(out.fenced);
    ASSERT_EQ(out.segments.size(), 1u);
    EXPECT_EQ(out.segments[0].lkey, 0x55u);
}

TEST(send_wqe, inline_and_pointer_segments_mix) {
    send_request out;
    wqe_bytes wqe(MLX5_OPCODE_SEND);
    ASSERT_EQ(decode(wqe.add(data(5)).add_inline(30, 30).add(data(7)).build(), out), decode_status::ok);
    EXPECT_EQ(out.length, 42u);
    ASSERT_EQ(out.segments.size(), 3u);
    EXPECT_FALSE(out.segments[0].inlined);
    EXPECT_TRUE(out.segments[1].inlined);
    EXPECT_EQ(out.inlined.size(), 30u);
    EXPECT_EQ(out.wqebbs, 2u);
}

TEST(send_wqe, reuse_leaves_nothing_behind) {
    send_request out;
    ASSERT_EQ(decode(wqe_bytes(MLX5_OPCODE_SEND).add_inline(20, 20).build(), out), decode_status::ok);
    ASSERT_EQ(decode(wqe_bytes(MLX5_OPCODE_NOP).build(), out), decode_status::ok);
    EXPECT_EQ(out.length, 0u);
    EXPECT_TRUE(out.segments.empty());
    EXPECT_TRUE(out.inlined.empty());
}

TEST(send_wqe, malformed_work_requests_are_refused) {
    send_request out;
    const auto refused = [&](wqe_bytes wqe, int ds = -1, std::uint32_t queue = qpn) {
        return decode(wqe.build(ds, queue), out);
    };
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND), 0), decode_status::empty);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND), 9), decode_status::empty) << "more than there is";
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND), -1, qpn + 1), decode_status::wrong_queue);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_UMR)), decode_status::empty) << "no key to change";
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_RDMA_WRITE)), decode_status::empty) << "no remote address";
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add_inline(12, 600)), decode_status::bad_segment);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add_inline(12, 0x7fffffff)), decode_status::bad_segment);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add(data(1u << 30)).add(data(1))), decode_status::too_long);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add(data(0))), decode_status::too_long) << "0 means 2 GiB";
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_ATOMIC_FA).add(remote()).add(remote()).add(data(4))),
              decode_status::bad_segment)
        << "atomics are 8 bytes";
    send_request stale;
    EXPECT_EQ(decode_send(wqe_bytes(MLX5_OPCODE_SEND).build(), {qpn, 5, false, false}, stale),
              decode_status::wrong_index);
    EXPECT_EQ(stale.index, 5u) << "the error CQE names the expected WQE";
}

/// A bind as libmlx5 writes it; the tests spoil parts of it.
struct bind_wqe {
    std::uint8_t flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    std::uint64_t mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    std::uint8_t free = 0;
    std::uint64_t start = 0x2000;
    std::uint64_t length = 100;
    std::uint32_t target_length = 100;
    bool has_target = true;
    bool datagram = false;

    decode_status read(send_request& out) const {
        mlx5_wqe_umr_ctrl_seg control{};
        control.flags = flags;
        control.mkey_mask = htobe64(mask);
        mlx5_wqe_mkey_context_seg context{};
        context.free = free;
        context.access_flags = MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE;
        context.qpn_mkey = htobe32(qpn << 8 | 0x9a);
        context.start_addr = htobe64(start);
        context.len = htobe64(length);
        wqe_bytes wqe(MLX5_OPCODE_UMR);
        wqe.head_.imm = htobe32(0x1234);
        wqe.add(control).add(context);
        if (has_target) wqe.add(mlx5_wqe_umr_klm_seg{htobe32(target_length), htobe32(0x55), htobe64(0x2000)});
        return decode(wqe.build(), out, datagram);
    }
};

TEST(send_wqe, a_bind_of_a_window_is_decoded) {
    send_request out;
    ASSERT_EQ(bind_wqe{}.read(out), decode_status::ok);
    EXPECT_EQ(out.kind, operation::bind);
    EXPECT_EQ(out.window.key, 0x1234u);
    EXPECT_EQ(out.window.variant, 0x9au);
    EXPECT_EQ(out.window.lkey, 0x55u);
    EXPECT_EQ(out.window.address, 0x2000u);
    EXPECT_EQ(out.window.length, 100u);
    EXPECT_EQ(out.window.access, static_cast<std::uint32_t>(IBV_ACCESS_REMOTE_WRITE));
}

TEST(send_wqe, an_invalidation_of_a_window_is_decoded) {
    send_request out;
    bind_wqe wqe;
    wqe.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    wqe.has_target = false;
    ASSERT_EQ(wqe.read(out), decode_status::ok);
    EXPECT_EQ(out.window.length, 0u);
}

TEST(send_wqe, other_changes_of_keys_are_refused) {
    const auto spoilt = [](auto spoil) {
        bind_wqe wqe;
        spoil(wqe);
        send_request out;
        return wqe.read(out);
    };
    constexpr auto bad = decode_status::bad_segment;
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.has_target = false; }), decode_status::empty) << "nothing to bind to";
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.datagram = true; }), decode_status::unknown_opcode);
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.flags = 0; }), bad) << "a list in memory";
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.mask = 0; }), bad);
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.length = 101; }), bad);
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.length = (std::uint64_t{1} << 32) + 100; }), bad);
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.start = 0; }), bad);
    EXPECT_EQ(spoilt([](bind_wqe& w) { w.length = w.target_length = 0; }), bad);
}

TEST(send_wqe, datagrams_cannot_write) {
    send_request out;
    mlx5_wqe_av av{};
    av.key.qkey.qkey = htobe32(0x1234);
    av.dqp_dct = htobe32(0x80000000u | 0x42);
    av.rlid = htobe16(3);
    ASSERT_EQ(decode(wqe_bytes(MLX5_OPCODE_SEND).add(av).add(data(9)).build(), out, true), decode_status::ok);
    EXPECT_EQ(out.destination.qpn, 0x42u);
    EXPECT_EQ(out.destination.qkey, 0x1234u);
    EXPECT_EQ(out.destination.dlid, 3u);
    EXPECT_EQ(decode(wqe_bytes(MLX5_OPCODE_RDMA_WRITE).add(av).add(remote()).build(), out, true),
              decode_status::unknown_opcode);
}

TEST(receive_wqe, a_receive_list_ends_at_the_invalid_key) {
    std::vector<segment> out;
    const mlx5_wqe_data_seg list[]{data(1), data(2), {0, htobe32(MLX5_INVALID_LKEY), 0}, data(3)};
    decode_receive(std::as_bytes(std::span(list)), out);
    EXPECT_EQ(out.size(), 2u);
}

TEST(cqe, an_error_carries_syndromes_and_owner) {
    completion what;
    what.qpn = qpn;
    what.wqe_counter = 7;
    what.error = syndrome::remote_access;
    what.vendor = vendor_syndrome::remote_access;
    const auto bytes = encode_cqe(what, MLX5_CQE_REQ_ERR, true, 99);
    mlx5_err_cqe cqe;
    std::memcpy(&cqe, bytes.data(), sizeof cqe);
    EXPECT_EQ(cqe.syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    EXPECT_EQ(cqe.vendor_err_synd, 0x88);
    EXPECT_EQ(be16toh(cqe.wqe_counter), 7);
    EXPECT_EQ(cqe.op_own, MLX5_CQE_REQ_ERR << 4 | 1);
}

}  // namespace
}  // namespace accel::softnic
