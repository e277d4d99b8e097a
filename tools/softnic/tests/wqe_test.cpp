// SPDX-License-Identifier: Apache-2.0
#include "wqe/completion.hpp"
#include "wqe/send_request.hpp"

#include <array>
#include <cstring>
#include <random>

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

struct opcode_row {
    std::uint8_t opcode;
    operation kind;
    bool remote, immediate, invalidate, datagram;
};
constexpr opcode_row opcodes_known[]{
    {MLX5_OPCODE_NOP, operation::nop, false, false, false, true},
    {MLX5_OPCODE_SEND, operation::send, false, false, false, true},
    {MLX5_OPCODE_SEND_IMM, operation::send, false, true, false, true},
    {MLX5_OPCODE_SEND_INVAL, operation::send, false, false, true, false},
    {MLX5_OPCODE_RDMA_WRITE, operation::write, true, false, false, false},
    {MLX5_OPCODE_RDMA_WRITE_IMM, operation::write, true, true, false, false},
    {MLX5_OPCODE_RDMA_READ, operation::read, true, false, false, false},
    {0x23, operation::dump, false, false, false, false},
};

/// Where datagrams and messages of initiators go.
mlx5_wqe_av address_of(std::mt19937_64& random, datagram_address& expected, bool ethernet, bool& extended) {
    extended = random() % 2 == 0;
    const bool global = random() % 2 == 0;
    mlx5_wqe_av av{};
    av.key.dc_key = htobe64(expected.access_key = random());
    expected.qkey = static_cast<std::uint32_t>(expected.access_key >> 32);
    expected.qpn = static_cast<std::uint32_t>(random()) & 0xffffff;
    av.dqp_dct = htobe32((extended ? 1u << 31 : 0u) | expected.qpn);
    av.rlid = htobe16(expected.dlid = static_cast<std::uint16_t>(random()));
    av.stat_rate_sl = static_cast<std::uint8_t>(0x70 | (expected.service_level = random() % 16));
    if (!extended) return av;
    expected.has_grh = global || ethernet;
    expected.gid_index = static_cast<std::uint8_t>(random());
    expected.flow_label = static_cast<std::uint32_t>(random()) & 0xfffff;
    av.grh_gid_fl = htobe32((global ? 1u << 30 : 0u) | std::uint32_t{expected.gid_index} << 20 | expected.flow_label);
    av.hop_limit = expected.hop_limit = static_cast<std::uint8_t>(random());
    av.tclass = expected.traffic_class = static_cast<std::uint8_t>(random());
    for (auto& byte : expected.gid) byte = static_cast<std::uint8_t>(random());
    std::copy(expected.gid.begin(), expected.gid.end(), std::begin(av.rgid));
    return av;
}

bool same(const segment& one, const segment& other) {
    return one.address == other.address && one.length == other.length && one.lkey == other.lkey &&
           one.inlined == other.inlined;
}

/// One random work request, decoded into what held others before.
void expect_decoded(std::mt19937_64& random, send_request& out) {
    const opcode_row& row = opcodes_known[random() % std::size(opcodes_known)];
    send_expectation expected{qpn, index, random() % 3 == 0, random() % 2 == 0, random() % 3 == 0};
    if (expected.datagram) expected.dynamic = false;
    wqe_bytes wqe(row.opcode);
    const auto flags = static_cast<std::uint8_t>(random());
    wqe.head_.fm_ce_se = flags;
    wqe.head_.imm = static_cast<std::uint32_t>(random());
    datagram_address to;
    const bool nothing = row.kind == operation::nop;
    const bool addressed = expected.datagram || (expected.dynamic && row.kind != operation::dump);
    if (addressed && !nothing) {
        bool extended = false;
        const auto av = address_of(random, to, expected.ethernet, extended);
        std::array<std::byte, 16> half{};
        std::memcpy(half.data(), &av, half.size());
        if (extended)
            wqe.add(av);
        else
            wqe.add(half);
    }
    if (row.remote) wqe.add(remote());
    std::uint32_t length = 0;
    std::vector<segment> segments;
    std::size_t inlined = 0;
    for (auto count = nothing ? 0 : random() % 4; count > 0; --count) {
        const auto size = static_cast<std::uint32_t>(1 + random() % 60);
        const bool inside = random() % 2 == 0;
        if (inside)
            wqe.add_inline(size, size);
        else
            wqe.add(data(size));
        segments.push_back({inside ? inlined : 0x2000, size, inside ? 0u : 0x55u, inside});
        if (inside) inlined += size;
        length += size;
    }
    const auto bytes = wqe.build();
    const auto status = decode_send(bytes, expected, out);
    if (expected.datagram && !row.datagram) {
        ASSERT_EQ(status, decode_status::unknown_opcode);
        return;
    }
    ASSERT_EQ(status, decode_status::ok) << int{row.opcode};
    ASSERT_EQ(out.kind, row.kind);
    ASSERT_EQ(out.has_immediate, row.immediate);
    ASSERT_EQ(out.invalidates, row.invalidate);
    ASSERT_EQ(out.immediate, wqe.head_.imm);
    ASSERT_EQ(out.signalled, (flags & MLX5_WQE_CTRL_CQ_UPDATE) != 0);
    ASSERT_EQ(out.solicited, (flags & MLX5_WQE_CTRL_SOLICITED) != 0);
    ASSERT_EQ(out.fenced, (flags & (MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE)) != 0);
    ASSERT_EQ(out.wqebbs, (bytes.size() + 63) / 64);
    ASSERT_EQ(out.length, length);
    if (addressed && !nothing) {
        ASSERT_EQ(out.destination, to);
    }
    if (row.remote) {
        ASSERT_EQ(out.remote_address, 0x1000u);
        ASSERT_EQ(out.rkey, 0x77u);
    }
    ASSERT_EQ(out.inlined.size(), inlined);
    ASSERT_TRUE(std::equal(segments.begin(), segments.end(), out.segments.begin(), out.segments.end(), same));
}

/// Atomics are in property_test.cpp.
TEST(send_wqe, work_requests_are_decoded_as_they_were_written) {
    std::mt19937_64 random(1);
    send_request out;
    for (int round = 0; round < 5000 && !::testing::Test::HasFailure(); ++round) {
        SCOPED_TRACE(round);
        expect_decoded(random, out);
    }
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
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_ATOMIC_FA).add(remote())), decode_status::empty) << "no operands";
    EXPECT_EQ(refused(wqe_bytes(0x13)), decode_status::unknown_opcode);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add_inline(12, 13)), decode_status::bad_segment);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add_inline(12, 12)), decode_status::ok);
    EXPECT_EQ(refused(wqe_bytes(MLX5_OPCODE_SEND).add(data(1u << 30))), decode_status::ok);
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

TEST(send_wqe, a_bind_of_a_window_is_decoded_and_other_changes_of_keys_are_refused) {
    send_request out;
    ASSERT_EQ(bind_wqe{}.read(out), decode_status::ok);
    EXPECT_EQ(out.kind, operation::bind);
    EXPECT_EQ(out.window.key, 0x1234u);
    EXPECT_EQ(out.window.variant, 0x9au);
    EXPECT_EQ(out.window.lkey, 0x55u);
    EXPECT_EQ(out.window.address, 0x2000u);
    EXPECT_EQ(out.window.length, 100u);
    EXPECT_EQ(out.window.access, static_cast<std::uint32_t>(IBV_ACCESS_REMOTE_WRITE));
    const auto changed = [&](auto change) {
        bind_wqe wqe;
        change(wqe);
        return wqe.read(out);
    };
    const auto end = [](bind_wqe& w) { w.free = MLX5_WQE_MKEY_CONTEXT_FREE, w.has_target = false; };
    EXPECT_EQ(changed(end), decode_status::ok) << "an invalidation";
    EXPECT_EQ(out.window.length, 0u);
    constexpr auto bad = decode_status::bad_segment;
    EXPECT_EQ(changed([](bind_wqe& w) { w.has_target = false; }), decode_status::empty) << "nothing to bind to";
    EXPECT_EQ(changed([](bind_wqe& w) { w.datagram = true; }), decode_status::unknown_opcode);
    EXPECT_EQ(changed([](bind_wqe& w) { w.flags = 0; }), bad) << "a list in memory";
    EXPECT_EQ(changed([](bind_wqe& w) { w.mask = 0; }), bad);
    EXPECT_EQ(changed([](bind_wqe& w) { w.length = 101; }), bad);
    EXPECT_EQ(changed([](bind_wqe& w) { w.length = (std::uint64_t{1} << 32) + 100; }), bad);
    EXPECT_EQ(changed([](bind_wqe& w) { w.start = 0; }), bad);
    EXPECT_EQ(changed([](bind_wqe& w) { w.length = w.target_length = 0; }), bad);
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
