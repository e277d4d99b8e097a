// SPDX-License-Identifier: Apache-2.0
// GPU memory through stock libibverbs, in one process. Run under `softnic run` on a machine with a CUDA GPU;
// exit status 77 without one.
#include "gpu_rig.cuh"
#include "softnic/softnic.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

namespace st = accel::softnic::testing;
namespace gpu = accel::softnic::testing::gpu;
using steady = std::chrono::steady_clock;

constexpr std::size_t region_bytes = (64 << 20) + (2 << 20);
constexpr std::uint8_t blank = 0xee;
constexpr std::size_t guard_bytes = 64;

struct device_memory : ::testing::TestWithParam<gpu::way> {
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    st::cq_owner cq{ibv_create_cq(context.get(), 128, nullptr, nullptr, 0)};
    st::cq_owner other_cq{ibv_create_cq(context.get(), 128, nullptr, nullptr, 0)};
    st::qp_owner qp = st::make_qp(pd.get(), cq.get(), cq.get());
    st::qp_owner other = st::make_qp(pd.get(), other_cq.get(), other_cq.get());
    gpu::buffer from{region_bytes};
    gpu::buffer to{region_bytes};

    void SetUp() override {
        const bool off = gpu::setting_is(GetParam() == gpu::way::peer ? "SOFTNIC_PEER_MEMORY" : "SOFTNIC_DMABUF", "0");
        if (off) GTEST_SKIP() << "turned off";
        st::connect(qp.get(), other.get());
        ASSERT_NE(from.enrol(pd.get(), GetParam()), nullptr) << std::strerror(errno);
        ASSERT_NE(to.enrol(pd.get(), GetParam()), nullptr) << std::strerror(errno);
    }

    /// One operation that brings `size` bytes from `from` to `to`; returns when they must be there.
    void move(ibv_wr_opcode opcode, std::size_t from_at, std::size_t to_at, std::uint32_t size) const {
        const bool reads = opcode == IBV_WR_RDMA_READ;
        const bool tells = opcode != IBV_WR_RDMA_WRITE && !reads;
        ibv_sge into{to.address(to_at), size, to.mr()->lkey};
        if (tells) gpu::post_receive(other.get(), &into, opcode == IBV_WR_SEND ? 1 : 0);
        ibv_sge piece = reads ? into : ibv_sge{from.address(from_at), size, from.mr()->lkey};
        auto what = reads ? gpu::request(opcode, piece, from.address(from_at), from.mr()->rkey)
                          : gpu::request(opcode, piece, to.address(to_at), to.mr()->rkey);
        gpu::post(qp.get(), what);
        const ibv_wc done = gpu::wait(cq.get());
        ASSERT_EQ(done.status, IBV_WC_SUCCESS) << done.vendor_err;
        if (tells) {
            ASSERT_EQ(gpu::wait(other_cq.get()).status, IBV_WC_SUCCESS);
        }
        if (opcode == IBV_WR_RDMA_WRITE) read_behind();
    }
    /// What a program does that must know that its write is in memory: a read behind it.
    void read_behind() const {
        ibv_sge piece{from.address(region_bytes - 8), 8, from.mr()->lkey};
        auto what = gpu::request(IBV_WR_RDMA_READ, piece, to.address(region_bytes - 8), to.mr()->rkey);
        gpu::post(qp.get(), what);
        ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
    }
    void check(ibv_wr_opcode opcode, std::size_t from_at, std::size_t to_at, std::uint32_t size) const {
        static std::uint32_t seed = 0;
        SCOPED_TRACE(std::to_string(size) + " B, opcode " + std::to_string(opcode) + ", at " + std::to_string(from_at) +
                     " and " + std::to_string(to_at));
        gpu::fill(from.at(from_at), size, ++seed);
        gpu::set(to.at(to_at - guard_bytes), size + 2 * guard_bytes, blank);
        move(opcode, from_at, to_at, size);
        EXPECT_EQ(gpu::count_wrong(to.at(to_at), size, seed), 0u);
        EXPECT_EQ(gpu::count_unlike(to.at(to_at - guard_bytes), guard_bytes, blank), 0u) << "before it";
        EXPECT_EQ(gpu::count_unlike(to.at(to_at + size), guard_bytes, blank), 0u) << "behind it";
    }
};

TEST_P(device_memory, bytes_arrive_whatever_size_and_alignment) {
    for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
        for (const std::uint32_t size :
             {1u, 2u, 7u, 8u, 9u, 31u, 32u, 33u, 100u, 4095u, 4096u, 4097u, 65541u, 1u << 20})
            for (const std::size_t shift : {0u, 1u, 5u, 8u, 15u}) check(opcode, 4096 + shift, 8192 + 3 * shift, size);
    }
}

TEST_P(device_memory, large_messages_arrive) {
    for (const auto opcode : {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ}) {
        check(opcode, 4096, 4096, 64u << 20);
        check(opcode, 4097, 4103, (16u << 20) - 5);
    }
}

TEST_P(device_memory, segments_of_host_and_device_memory_mix) {
    std::vector<std::uint8_t> host(8192);
    const st::mr_owner mr(ibv_reg_mr(pd.get(), host.data(), host.size(), gpu::all_access));
    gpu::fill(from.at(4096), 20'000, 77);
    gpu::set(to.at(0), 30'000, blank);
    for (std::size_t at = 0; at < host.size(); ++at) host[at] = static_cast<std::uint8_t>(at);
    const auto address = [&](std::size_t at) { return reinterpret_cast<std::uint64_t>(host.data() + at); };
    std::array out{ibv_sge{address(0), 100, mr->lkey}, ibv_sge{from.address(4096), 9000, from.mr()->lkey},
                   ibv_sge{address(200), 7, mr->lkey}, ibv_sge{from.address(4096 + 9000), 33, from.mr()->lkey}};
    std::array in{ibv_sge{to.address(101), 100, to.mr()->lkey}, ibv_sge{address(4096), 3000, mr->lkey},
                  ibv_sge{to.address(9001), 6040, to.mr()->lkey}};
    gpu::post_receive(other.get(), in.data(), 3);
    auto what = gpu::request(IBV_WR_SEND, out[0], 0, 0);
    what.num_sge = 4;
    gpu::post(qp.get(), what);
    ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
    const ibv_wc got = gpu::wait(other_cq.get());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS);
    ASSERT_EQ(got.byte_len, 9140u);
    std::vector<std::uint8_t> back(6040);
    ASSERT_EQ(cudaMemcpy(back.data(), to.at(101), 100, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(std::memcmp(back.data(), host.data(), 100), 0);
    for (std::size_t at = 0; at < 3000; ++at) ASSERT_EQ(host[4096 + at], gpu::pattern(77, at));
    ASSERT_EQ(cudaMemcpy(back.data(), to.at(9001), 6040, cudaMemcpyDeviceToHost), cudaSuccess);
    for (std::size_t at = 0; at < 6000; ++at) ASSERT_EQ(back[at], gpu::pattern(77, 3000 + at));
    EXPECT_EQ(std::memcmp(back.data() + 6000, host.data() + 200, 7), 0);
    for (std::size_t at = 0; at < 33; ++at) ASSERT_EQ(back[6007 + at], gpu::pattern(77, 9000 + at));
}

TEST_P(device_memory, inline_data_lands) {
    std::array<std::uint8_t, 60> bytes{};
    for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = gpu::pattern(5, at);
    gpu::set(to.at(4096), 200, blank);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(bytes.data()), 60, 0};
    auto what = gpu::request(IBV_WR_RDMA_WRITE, piece, to.address(4096 + 3), to.mr()->rkey);
    what.send_flags |= IBV_SEND_INLINE;
    gpu::post(qp.get(), what);
    ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
    read_behind();
    EXPECT_EQ(gpu::count_wrong(to.at(4096 + 3), 60, 5), 0u);
    EXPECT_EQ(gpu::count_unlike(to.at(4096 + 63), 100, blank), 0u);
}

TEST_P(device_memory, atomics_work_only_with_the_copy_kernel) {
    const bool by_kernel = !gpu::setting_is("SOFTNIC_CUDA_DMA", "memcpy");
    std::uint64_t value = 40;
    ASSERT_EQ(cudaMemcpy(to.at(64), &value, 8, cudaMemcpyHostToDevice), cudaSuccess);
    ibv_sge piece{from.address(128), 8, from.mr()->lkey};
    auto what = gpu::request(IBV_WR_ATOMIC_FETCH_AND_ADD, piece, 0, 0);
    what.wr.atomic = {to.address(64), 2, 0, to.mr()->rkey};
    gpu::post(qp.get(), what);
    const ibv_wc done = gpu::wait(cq.get());
    if (!by_kernel) {
        EXPECT_EQ(done.status, IBV_WC_REM_ACCESS_ERR);
        return;
    }
    ASSERT_EQ(done.status, IBV_WC_SUCCESS);
    what.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    what.wr.atomic = {to.address(64), 42, 7, to.mr()->rkey};
    gpu::post(qp.get(), what);
    ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
    ASSERT_EQ(cudaMemcpy(&value, to.at(64), 8, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(value, 7u);
    ASSERT_EQ(cudaMemcpy(&value, from.at(128), 8, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(value, 42u);
}

/// A kernel waits on the GPU for the flag and then looks at the data.
TEST_P(device_memory, data_is_there_before_its_flag) {
    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, sizeof(gpu::reading)), cudaSuccess);
    auto* seen = static_cast<volatile gpu::reading*>(pinned);
    gpu::set(to.at(0), 1 << 20, 0);
    for (std::uint32_t round = 1; round <= 100; ++round) {
        const std::uint32_t size = 1 + round * 997;
        gpu::fill(from.at(0), size, round);
        ASSERT_EQ(cudaMemcpy(from.at(1 << 20), &round, 4, cudaMemcpyHostToDevice), cudaSuccess);
        *static_cast<gpu::reading*>(pinned) = {};
        gpu::start_reader(reinterpret_cast<const std::uint32_t*>(to.at(1 << 20)), round, to.at(1), size, round,
                          static_cast<gpu::reading*>(pinned));
        ibv_sge data{from.address(0), size, from.mr()->lkey};
        auto first = gpu::request(IBV_WR_RDMA_WRITE, data, to.address(1), to.mr()->rkey);
        ibv_sge flag{from.address(1 << 20), 4, from.mr()->lkey};
        auto second = gpu::request(IBV_WR_RDMA_WRITE, flag, to.address(1 << 20), to.mr()->rkey);
        first.send_flags = 0;
        first.next = &second;
        gpu::post(qp.get(), first);
        ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
        const auto until = steady::now() + std::chrono::seconds(8);
        while (seen->finished == 0 && steady::now() < until) std::this_thread::yield();
        ASSERT_EQ(seen->finished, 1u) << "round " << round;
        ASSERT_EQ(seen->timed_out, 0u) << "round " << round;
        ASSERT_EQ(seen->wrong, 0u) << "round " << round;
    }
    cudaFreeHost(pinned);
}

TEST_P(device_memory, the_program_may_wait_for_the_whole_device) {
    std::atomic<bool> stop{false};
    std::atomic<int> moved{0};
    std::thread traffic([&] {
        while (!stop) {
            ibv_sge piece{from.address(0), 100'000, from.mr()->lkey};
            auto what = gpu::request(IBV_WR_RDMA_WRITE, piece, to.address(0), to.mr()->rkey);
            gpu::post(qp.get(), what);
            if (gpu::wait(cq.get()).status != IBV_WC_SUCCESS) break;
            ++moved;
        }
    });
    double longest = 0;
    for (int round = 0; round < 20; ++round) {
        const auto start = steady::now();
        void* memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_EQ(cudaMemset(memory, 0, 1 << 20), cudaSuccess);
        EXPECT_EQ(cudaFree(memory), cudaSuccess);
        longest = std::max(longest, std::chrono::duration<double>(steady::now() - start).count());
    }
    const int before = moved;
    const auto until = steady::now() + std::chrono::seconds(5);
    while (moved == before && steady::now() < until) std::this_thread::yield();
    EXPECT_GT(moved, before) << "the traffic has stopped";
    stop = true;
    traffic.join();
    EXPECT_LT(longest, 1.0);
    std::printf("cudaMalloc, cudaDeviceSynchronize, cudaMemset, cudaFree beside traffic: at most %.1f ms\n",
                longest * 1e3);
}

TEST_P(device_memory, freed_memory_can_be_registered_again) {
    for (int round = 0; round < 10; ++round) {
        gpu::buffer more(4 << 20);
        ASSERT_NE(more.enrol(pd.get(), GetParam()), nullptr);
        ibv_sge piece{from.address(0), 1 << 20, from.mr()->lkey};
        auto what = gpu::request(IBV_WR_RDMA_WRITE, piece, more.address(0), more.mr()->rkey);
        gpu::post(qp.get(), what);
        ASSERT_EQ(gpu::wait(cq.get()).status, IBV_WC_SUCCESS);
    }
}

INSTANTIATE_TEST_SUITE_P(registered_by, device_memory, ::testing::Values(gpu::way::dmabuf, gpu::way::peer),
                         [](const auto& kind) { return kind.param == gpu::way::peer ? "peer" : "dmabuf"; });

struct registration : ::testing::Test {
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    gpu::buffer memory{4 << 20};
};

TEST_F(registration, peer_memory_can_be_turned_off) {
    ibv_mr* mr = memory.enrol(pd.get(), gpu::way::peer);
    const int problem = errno;
    if (gpu::setting_is("SOFTNIC_PEER_MEMORY", "0")) {
        EXPECT_EQ(mr, nullptr);
        EXPECT_EQ(problem, EFAULT);
    } else {
        EXPECT_NE(mr, nullptr) << std::strerror(problem);
    }
}

TEST_F(registration, dmabuf_can_be_turned_off) {
    ibv_mr* mr = memory.enrol(pd.get(), gpu::way::dmabuf);
    const int problem = errno;
    if (gpu::setting_is("SOFTNIC_DMABUF", "0")) {
        EXPECT_EQ(mr, nullptr);
        EXPECT_EQ(problem, EOPNOTSUPP);
    } else {
        EXPECT_NE(mr, nullptr) << std::strerror(problem);
    }
}

TEST_F(registration, a_registration_with_wrong_addresses_or_lengths_is_refused) {
    const int file = gpu::export_dmabuf(memory.at(0), memory.size());
    ASSERT_GE(file, 0);
    std::vector<std::byte> host(8 << 20);
    const auto in_host = (reinterpret_cast<std::uint64_t>(host.data()) + 4095) & ~4095ull;
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd.get(), 0, 4096, in_host, file, gpu::all_access), nullptr) << "not its address";
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd.get(), 0, memory.size() + 4096, memory.address(), file, gpu::all_access), nullptr)
        << "past its end";
    ::close(file);
    EXPECT_EQ(ibv_reg_mr(pd.get(), memory.at(0), 1ull << 36, gpu::all_access), nullptr) << "past the allocation";
}

}  // namespace

int main(int count, char** arguments) {
    ::testing::InitGoogleTest(&count, arguments);
    if (const char* why = gpu::missing()) {
        std::printf("skipped: %s\n", why);
        return 77;
    }
    return RUN_ALL_TESTS();
}
