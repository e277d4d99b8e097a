// SPDX-License-Identifier: Apache-2.0
// Stock libibverbs and libmlx5 on top of the preload library. Run under `softnic run`, in every poll mode.
#include "softnic/softnic.h"
#include "verbs_fixture.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include <endian.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;
using steady = std::chrono::steady_clock;

using st::all_access;

struct verbs : st::verbs_fixture {};

TEST_F(verbs, writes_of_many_sizes_arrive) {
    for (const std::uint32_t size : {1u, 8u, 60u, 1024u, 4097u, 65536u, 1000000u}) {
        std::fill(to.begin(), to.end(), std::uint8_t{0});
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE, piece, size);
        post(qp.get(), what);
        const ibv_wc done = wait(cq.get());
        ASSERT_EQ(done.status, IBV_WC_SUCCESS);
        EXPECT_EQ(done.wr_id, 1000 + size);
        EXPECT_EQ(done.opcode, IBV_WC_RDMA_WRITE);
        EXPECT_EQ(done.qp_num, qp->qp_num);
        EXPECT_EQ(std::memcmp(from.data(), to.data(), size), 0);
        EXPECT_EQ(to[size], 0);
    }
}

TEST_F(verbs, sends_reads_and_atomics_complete) {
    receive(other.get(), 4096, 55);
    ibv_sge piece{};
    auto send = request(IBV_WR_SEND_WITH_IMM, piece, 3000);
    send.imm_data = htobe32(0xbeef);
    post(qp.get(), send);
    const ibv_wc got = wait(other_cq.get());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS);
    EXPECT_EQ(got.wr_id, 55u);
    EXPECT_EQ(got.byte_len, 3000u);
    EXPECT_EQ(be32toh(got.imm_data), 0xbeefu);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);

    std::iota(to.begin(), to.end(), std::uint8_t{3});
    auto read = request(IBV_WR_RDMA_READ, piece, 100000);
    post(qp.get(), read);
    const ibv_wc brought = wait(cq.get());
    ASSERT_EQ(brought.status, IBV_WC_SUCCESS);
    EXPECT_EQ(brought.byte_len, 100000u);
    EXPECT_EQ(std::memcmp(from.data(), to.data(), 100000), 0);

    std::uint64_t value = 37;
    std::memcpy(to.data(), &value, 8);
    auto add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, piece, 8);
    add.wr.atomic.remote_addr = reinterpret_cast<std::uint64_t>(to.data());
    add.wr.atomic.rkey = to_mr->rkey;
    add.wr.atomic.compare_add = 5;
    post(qp.get(), add);
    ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    std::memcpy(&value, from.data(), 8);
    EXPECT_EQ(value, 37u);
    std::memcpy(&value, to.data(), 8);
    EXPECT_EQ(value, 42u);
}

/// Past 65536 WQEs and several turns of every ring, in batches: waiting for each would take long on a busy
/// machine.
TEST_F(verbs, rings_and_indices_wrap) {
    constexpr std::uint32_t batch = 32;
    for (std::uint32_t round = 0; round < 70'000; round += batch) {
        for (std::uint32_t at = round; at < round + batch; ++at) {
            ibv_sge piece{};
            auto what = request(IBV_WR_RDMA_WRITE, piece, 4);
            what.wr_id = at;
            if (at + 1 < round + batch) what.send_flags = 0;
            if ((at & 1) != 0) what.send_flags |= IBV_SEND_INLINE;
            std::memcpy(from.data(), &at, 4);
            post(qp.get(), what);
        }
        const ibv_wc done = wait(cq.get());
        ASSERT_EQ(done.status, IBV_WC_SUCCESS);
        ASSERT_EQ(done.wr_id, round + batch - 1);
        const std::uint32_t last = round + batch - 1;
        ASSERT_EQ(std::memcmp(to.data(), &last, 4), 0);
    }
}

/// As a GPU kernel would post: WQE, doorbell record, doorbell, by hand.
TEST_F(verbs, hand_made_work_requests_are_executed) {
    mlx5dv_qp raw{};
    mlx5dv_obj object{};
    object.qp.in = qp.get();
    object.qp.out = &raw;
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    ibv_sge piece{};
    auto what = request(IBV_WR_RDMA_WRITE, piece, 16);
    post(qp.get(), what);
    ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);

    auto* sq = static_cast<std::byte*>(raw.sq.buf);
    std::array<std::byte, 48> mine{};
    const auto build = [&](std::uint16_t index) {
        mlx5_wqe_ctrl_seg control{};
        control.opmod_idx_opcode = htobe32(std::uint32_t{index} << 8 | MLX5_OPCODE_RDMA_WRITE);
        control.qpn_ds = htobe32(qp->qp_num << 8 | 3);
        control.fm_ce_se = MLX5_WQE_CTRL_CQ_UPDATE;
        const mlx5_wqe_raddr_seg remote{htobe64(what.wr.rdma.remote_addr), htobe32(to_mr->rkey), 0};
        const mlx5_wqe_data_seg data{htobe32(16), htobe32(from_mr->lkey), htobe64(piece.addr)};
        std::memcpy(mine.data(), &control, 16);
        std::memcpy(mine.data() + 16, &remote, 16);
        std::memcpy(mine.data() + 32, &data, 16);
    };
    build(0);
    EXPECT_EQ(std::memcmp(mine.data(), sq, mine.size()), 0) << "not what libmlx5 writes";

    std::fill(to.begin(), to.end(), std::uint8_t{0});
    build(1);
    std::memcpy(sq + 64, mine.data(), mine.size());
    __atomic_thread_fence(__ATOMIC_RELEASE);
    reinterpret_cast<volatile std::uint32_t*>(raw.dbrec)[MLX5_SND_DBR] = htobe32(2);
    const auto quiet_until = steady::now() + std::chrono::milliseconds(50);
    while (steady::now() < quiet_until) softnic_progress();
    EXPECT_EQ(to[0], 0) << "a doorbell record without a doorbell must do nothing";
    std::uint64_t doorbell = 0;
    std::memcpy(&doorbell, mine.data(), 8);
    *static_cast<volatile std::uint64_t*>(raw.bf.reg) = doorbell;
    const auto deadline = steady::now() + std::chrono::seconds(5);
    volatile std::uint8_t* flag = to.data() + 15;
    while (*flag != from[15] && steady::now() < deadline) softnic_progress();
    EXPECT_EQ(std::memcmp(to.data(), from.data(), 16), 0);
}

TEST_F(verbs, a_blocking_read_gets_completion_events) {
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE, piece, 8);
        post(qp.get(), what);
        ibv_cq* which = nullptr;
        void* user = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &user), 0);
        EXPECT_EQ(which, cq.get());
        ibv_ack_cq_events(which, 1);
        EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    }
}

TEST_F(verbs, completion_events_are_polled_for_and_read_without_blocking) {
    ASSERT_EQ(::fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    pollfd entry{channel->fd, POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 20), 0) << "nothing has happened";
    ibv_cq* which = nullptr;
    void* user = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel.get(), &which, &user), -1) << "nothing has happened";
    EXPECT_EQ(errno, EAGAIN);
    ibv_sge piece{};
    auto what = request(IBV_WR_RDMA_WRITE, piece, 100'000);
    post(qp.get(), what);
    EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
    ASSERT_EQ(ibv_get_cq_event(channel.get(), &which, &user), 0);
    ASSERT_EQ(which, cq.get());
    ibv_ack_cq_events(which, 1);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
}

TEST_F(verbs, errors_flush_and_tell_the_other_side) {
    ibv_sge piece{};
    auto bad = request(IBV_WR_RDMA_WRITE, piece, 8);
    bad.wr.rdma.rkey += 256 * 50;
    ibv_sge next_piece{};
    auto next = request(IBV_WR_RDMA_WRITE, next_piece, 9);
    bad.next = &next;
    post(qp.get(), bad);
    const ibv_wc first = wait(cq.get());
    EXPECT_EQ(first.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(first.vendor_err, 0x88u);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_WR_FLUSH_ERR);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event.element.qp, other.get());
    ibv_ack_async_event(&event);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(other.get(), &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

/// Destroying hangs for ever unless the count of events is exact; the test's timeout is the check.
TEST_F(verbs, destroying_with_unread_events_returns) {
    ibv_sge piece{};
    auto bad = request(IBV_WR_RDMA_WRITE, piece, 8);
    bad.wr.rdma.rkey += 256 * 50;
    ASSERT_EQ(ibv_req_notify_cq(cq.get(), 0), 0);
    post(qp.get(), bad);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(verbs, resizing_keeps_unread_completions) {
    for (std::uint32_t size = 1; size <= 5; ++size) {
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE, piece, size);
        post(qp.get(), what);
    }
    receive(qp.get(), 8, 1);
    while (to[4] != from[4] && softnic_progress() >= 0) {
    }
    for (int count = 0; count < 1000; ++count) softnic_progress();
    ASSERT_EQ(ibv_resize_cq(cq.get(), 1000), 0);
    ibv_sge piece{};
    auto last = request(IBV_WR_RDMA_WRITE, piece, 6);
    post(qp.get(), last);
    for (std::uint32_t size = 1; size <= 6; ++size) {
        const ibv_wc done = wait(cq.get());
        EXPECT_EQ(done.status, IBV_WC_SUCCESS);
        EXPECT_EQ(done.wr_id, 1000 + size);
    }
}

TEST_F(verbs, a_shared_receive_queue_reports_its_limit) {
    ibv_srq_init_attr init{};
    init.attr = {16, 2, 0};
    const st::srq_owner srq(ibv_create_srq(pd.get(), &init));
    ASSERT_NE(srq, nullptr);
    const st::qp_owner one = st::make_qp(pd.get(), cq.get(), cq.get());
    const st::qp_owner two = st::make_qp(pd.get(), other_cq.get(), other_cq.get(), 64, srq.get());
    st::connect(one.get(), two.get());
    for (std::uint64_t id = 0; id < 4; ++id) {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(to.data()), 100, to_mr->lkey};
        ibv_recv_wr what{id, nullptr, &piece, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srq.get(), &what, &bad), 0);
    }
    ibv_srq_attr limit{};
    limit.srq_limit = 3;
    ASSERT_EQ(ibv_modify_srq(srq.get(), &limit, IBV_SRQ_LIMIT), 0);
    for (std::uint64_t id = 0; id < 4; ++id) {
        ibv_sge piece{};
        auto what = request(IBV_WR_SEND, piece, 10);
        post(one.get(), what);
        const ibv_wc got = wait(other_cq.get());
        EXPECT_EQ(got.status, IBV_WC_SUCCESS);
        EXPECT_EQ(got.wr_id, id);
        EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    }
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    ibv_ack_async_event(&event);
}

TEST_F(verbs, the_c_api_adds_faults_and_reads_counters) {
    char problem[100];
    EXPECT_EQ(softnic_fault_add("explode", problem, sizeof problem), -1);
    EXPECT_STRNE(problem, "");
    const std::uint64_t before = softnic_counter("retransmissions");
    ASSERT_EQ(softnic_fault_add("drop nth=1 op=write", problem, sizeof problem), 0);
    ibv_sge piece{};
    auto what = request(IBV_WR_RDMA_WRITE, piece, 8);
    post(qp.get(), what);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    EXPECT_EQ(softnic_counter("retransmissions"), before + 1);
    EXPECT_GE(softnic_fault_count(), 1u);
    EXPECT_EQ(softnic_counter("no such counter"), 0u);
}

TEST_F(verbs, strict_mode_still_delivers) {
    softnic_strict(1);
    for (std::uint32_t round = 1; round < 200; ++round) {
        receive(other.get(), 0, round);
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE_WITH_IMM, piece, 4);
        std::memcpy(from.data(), &round, 4);
        post(qp.get(), what);
        ASSERT_EQ(wait(other_cq.get()).status, IBV_WC_SUCCESS);
        ASSERT_EQ(std::memcmp(to.data(), &round, 4), 0) << "completion ahead of its data";
        ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    }
    EXPECT_EQ(softnic_counter("late_wqes"), 0u);
}

/// Memory that only a plugin reaches: addresses nobody has mapped. What is written waits for flush().
struct plugin_memory {
    static constexpr std::uint64_t base = 1ull << 52;
    static constexpr std::uint64_t refused = 1ull << 53;
    static constexpr std::uint64_t range_space = 7;
    std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(1 << 16);
    std::vector<std::pair<std::uint64_t, std::vector<std::uint8_t>>> waiting;
    int released = 0;

    static plugin_memory& of(void* self) { return *static_cast<plugin_memory*>(self); }
    static int claim(void*, std::uint64_t address, std::uint64_t, std::uint64_t* space) {
        *space = range_space;
        if (address >= refused) return -EFAULT;
        return address >= base ? 1 : 0;
    }
    /// By convention the address of what is in the buffer.
    static int claim_dmabuf(void*, int, std::uint64_t offset, std::uint64_t, std::uint64_t iova, std::uint64_t* space) {
        *space = iova - offset;
        return iova >= base ? 1 : 0;
    }
    /// The space is what the claim said.
    static std::uint64_t index(std::uint64_t space, std::uint64_t at) {
        EXPECT_TRUE(space == range_space || space >= base) << space;
        return space == range_space ? at - base : space + at - base;
    }
    static int read(void* self, std::uint64_t space, void* out, std::uint64_t at, std::size_t size) {
        flush(self, space);
        std::memcpy(out, of(self).bytes.data() + index(space, at), size);
        return 0;
    }
    static int write(void* self, std::uint64_t space, std::uint64_t at, const void* in, std::size_t size) {
        const auto* first = static_cast<const std::uint8_t*>(in);
        of(self).waiting.push_back({index(space, at), {first, first + size}});
        return 0;
    }
    static int flush(void* self, std::uint64_t) {
        for (const auto& [at, data] : of(self).waiting)
            std::memcpy(of(self).bytes.data() + at, data.data(), data.size());
        of(self).waiting.clear();
        return 0;
    }
    static void release(void* self, std::uint64_t) { ++of(self).released; }

    static plugin_memory& registered() {
        static softnic_dma_ops operations{};
        static auto& only = *new plugin_memory;
        if (operations.read == nullptr) {
            operations.claim_range = &claim;
            operations.claim_dmabuf = &claim_dmabuf;
            operations.read = &read;
            operations.write = &write;
            operations.flush = &flush;
            operations.release = &release;
            EXPECT_EQ(softnic_dma_register(&operations, &only), 0);
        }
        return only;
    }
};

TEST_F(verbs, regions_over_memory_of_a_plugin_are_reached) {
    auto& memory = plugin_memory::registered();
    EXPECT_EQ(ibv_reg_mr(pd.get(), reinterpret_cast<void*>(plugin_memory::refused), 4096, all_access), nullptr);
    EXPECT_EQ(errno, EFAULT) << "the plugin's answer";
    for (const bool strict : {false, true}) {
        softnic_strict(strict ? 1 : 0);
        std::fill(memory.bytes.begin(), memory.bytes.end(), std::uint8_t{0});
        st::mr_owner mr(ibv_reg_mr(pd.get(), reinterpret_cast<void*>(plugin_memory::base), 1 << 16, all_access));
        ASSERT_NE(mr, nullptr);
        receive(other.get(), 0, 1);
        ibv_sge piece{};
        auto what = request(IBV_WR_RDMA_WRITE_WITH_IMM, piece, 60'000);
        what.wr.rdma.remote_addr = plugin_memory::base + 3;
        what.wr.rdma.rkey = mr->rkey;
        post(qp.get(), what);
        ASSERT_EQ(wait(other_cq.get()).status, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(memory.bytes.data() + 3, from.data(), 60'000), 0);
        ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
        auto write = request(IBV_WR_RDMA_WRITE, piece, 100);
        write.wr.rdma.remote_addr = plugin_memory::base;
        write.wr.rdma.rkey = mr->rkey;
        post(qp.get(), write);
        ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
        const int before = memory.released;
        mr.reset();
        EXPECT_TRUE(memory.waiting.empty()) << "a write to memory that the program may give back";
        EXPECT_EQ(memory.released, before + 1);
    }
}

TEST_F(verbs, dmabufs_of_a_plugin_are_reached) {
    auto& memory = plugin_memory::registered();
    const int file = ::memfd_create("buffer", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(file, 1 << 16), 0);
    const st::mr_owner mr(ibv_reg_dmabuf_mr(pd.get(), 4096, 8192, plugin_memory::base + 4096, file, all_access));
    ::close(file);
    ASSERT_NE(mr, nullptr);
    ibv_sge piece{};
    auto what = request(IBV_WR_RDMA_WRITE, piece, 5000);
    what.wr.rdma.remote_addr = plugin_memory::base + 5000;
    what.wr.rdma.rkey = mr->rkey;
    post(qp.get(), what);
    ASSERT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory.bytes.data() + 5000, from.data(), 5000), 0);
}

}  // namespace
