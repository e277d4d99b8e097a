// SPDX-License-Identifier: Apache-2.0
// libsoftnic_cuda.so on a driver that is none (fake_cuda.cpp): how it is loaded, claims, copies by the
// driver and by the kernel, failures. Run under `softnic run --cuda-dma memcpy` (`cuda_kernel`: `kernel`), with the
// file of the fake as argument.
#include "devx_in_memory.hpp"
#include "fake_cuda.hpp"
#include "softnic/softnic.h"
#include "verbs_pair.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;
using steady = std::chrono::steady_clock;

constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::size_t bytes = 1 << 20;

void* driver = nullptr;

template <class Function>
Function* in_driver(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(driver, name));
}
fake_cuda::allocation allocate() {
    fake_cuda::allocation made;
    in_driver<decltype(fake_cuda_allocate)>("fake_cuda_allocate")(bytes, &made);
    return made;
}

struct cuda_plugin : ::testing::Test {
    st::context_owner context = st::open_device();
    st::pd_owner pd{ibv_alloc_pd(context.get())};
    st::cq_owner cq{ibv_create_cq(context.get(), 128, nullptr, nullptr, 0)};
    st::qp_owner qp = st::make_qp(pd.get(), cq.get(), cq.get());
    st::qp_owner other = st::make_qp(pd.get(), cq.get(), cq.get());
    fake_cuda::allocation from = allocate();
    fake_cuda::allocation to = allocate();

    void SetUp() override {
        st::connect(qp.get(), other.get());
        for (std::size_t at = 0; at < bytes; ++at) in(from)[at] = static_cast<std::uint8_t>(at * 7 + (at >> 8));
    }
    static std::uint8_t* in(const fake_cuda::allocation& one) { return static_cast<std::uint8_t*>(one.inside); }
    [[nodiscard]] st::mr_owner enrol(const fake_cuda::allocation& one) const {
        return st::mr_owner(ibv_reg_mr(pd.get(), reinterpret_cast<void*>(one.address), bytes, all_access));
    }
    [[nodiscard]] ibv_wc run(ibv_wr_opcode opcode, std::uint32_t size, const ibv_mr& local,
                             const ibv_mr& remote) const {
        ibv_sge piece{from.address + 5, size, local.lkey};
        ibv_send_wr what{};
        ibv_send_wr* bad = nullptr;
        what.sg_list = &piece;
        what.num_sge = 1;
        what.opcode = opcode;
        what.send_flags = IBV_SEND_SIGNALED;
        what.wr.rdma = {to.address + 3, remote.rkey};
        ibv_wc done{};
        done.status = IBV_WC_GENERAL_ERR;
        if (ibv_post_send(qp.get(), &what, &bad) != 0) return done;
        const auto until = steady::now() + std::chrono::seconds(20);
        while (ibv_poll_cq(cq.get(), 1, &done) == 0 && steady::now() < until) {
        }
        return done;
    }
};

/// The memory of the fake, seen from inside.
class seen_inside {
  public:
    [[nodiscard]] std::uint64_t address() const { return memory_.address; }
    void put(std::size_t offset, const void* from, std::size_t size) const { std::memcpy(at(offset), from, size); }
    void get(std::size_t offset, void* to, std::size_t size) const { std::memcpy(to, at(offset), size); }

  private:
    [[nodiscard]] char* at(std::size_t offset) const { return static_cast<char*>(memory_.inside) + offset; }
    fake_cuda::allocation memory_ = allocate();
};

TEST(cuda_plugin_devx, queues_work_in_memory_of_a_device) {
    seen_inside queues;
    seen_inside data;
    st::devx_in_memory<seen_inside> pair(queues, data);
    pair.write_many(100);
}

TEST_F(cuda_plugin, moves_bytes_between_memories_of_a_device) {
    const auto source = enrol(from);
    const auto target = enrol(to);
    ASSERT_NE(source, nullptr) << std::strerror(errno);
    ASSERT_NE(target, nullptr);
    for (const std::uint32_t size : {1u, 8u, 33u, 4097u, 300'000u, 1'000'000u}) {
        std::memset(to.inside, 0, bytes);
        ASSERT_EQ(run(IBV_WR_RDMA_WRITE, size, *source, *target).status, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(in(to) + 3, in(from) + 5, size), 0) << size;
        EXPECT_EQ(in(to)[2], 0);
        EXPECT_EQ(in(to)[3 + size], 0);
        std::memset(in(from) + 5, 0x77, size);
        ASSERT_EQ(run(IBV_WR_RDMA_READ, size, *source, *target).status, IBV_WC_SUCCESS);
        EXPECT_EQ(std::memcmp(in(to) + 3, in(from) + 5, size), 0) << size;
    }
}

/// As another process would look for neighbours.
int places_taken_by_this_process() {
    constexpr long places = 1 << 30;
    const std::string path =
        "/dev/shm/softnic-gpu-" + std::to_string(::getuid()) + "-fake-" + std::to_string(::getpid());
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    int taken = 0;
    for (long from = 0; file >= 0 && from < places; ++taken) {
        struct flock found {};
        found.l_type = F_WRLCK;
        found.l_start = from;
        found.l_len = places - from;
        if (::fcntl(file, F_OFD_GETLK, &found) != 0 || found.l_type == F_UNLCK) break;
        from = found.l_start + found.l_len;
    }
    if (file >= 0) ::close(file);
    ::unlink(path.c_str());
    return taken;
}

TEST_F(cuda_plugin, a_process_is_not_its_own_neighbour) {
    ASSERT_NE(from.of_a_context, to.of_a_context) << "so there is a worker for each";
    const auto source = enrol(from);
    const auto target = enrol(to);
    ASSERT_TRUE(source != nullptr && target != nullptr) << std::strerror(errno);
    EXPECT_EQ(places_taken_by_this_process(), 1);
}

TEST_F(cuda_plugin, a_region_beyond_its_allocation_is_refused) {
    EXPECT_EQ(ibv_reg_mr(pd.get(), reinterpret_cast<void*>(from.address), 1ull << 36, all_access), nullptr);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(ibv_reg_dmabuf_mr(pd.get(), 0, bytes, from.address, 1, all_access), nullptr) << "no dma-buf";
    EXPECT_EQ(errno, EOPNOTSUPP);
    std::vector<std::uint8_t> host(4096);
    const st::mr_owner mr(ibv_reg_mr(pd.get(), host.data(), host.size(), all_access));
    EXPECT_NE(mr, nullptr) << "host memory stays host memory";
}

/// The last test: the fake driver stays broken.
TEST_F(cuda_plugin, work_on_a_device_that_failed_ends_with_an_error) {
    const auto source = enrol(from);
    const auto target = enrol(to);
    ASSERT_TRUE(source != nullptr && target != nullptr) << std::strerror(errno);
    ASSERT_EQ(run(IBV_WR_RDMA_WRITE, 1000, *source, *target).status, IBV_WC_SUCCESS);
    in_driver<decltype(fake_cuda_fail)>("fake_cuda_fail")();
    EXPECT_EQ(run(IBV_WR_RDMA_WRITE, 1000, *source, *target).status, IBV_WC_LOC_PROT_ERR);
}

struct cuda_kernel : cuda_plugin {
    struct counts {
        std::size_t by_driver, by_kernels;
    };
    static counts count() {
        counts made{};
        in_driver<decltype(fake_cuda_count)>("fake_cuda_count")(&made.by_driver, &made.by_kernels);
        return made;
    }
    static void fill(bool now) { in_driver<decltype(fake_cuda_fill)>("fake_cuda_fill")(now); }
    void write(const ibv_mr& source, const ibv_mr& target, std::uint8_t value) const {
        constexpr std::uint32_t size = 300'000;
        std::memset(in(from) + 5, value, size);
        ASSERT_EQ(run(IBV_WR_RDMA_WRITE, size, source, target).status, IBV_WC_SUCCESS);
        ASSERT_EQ(std::memcmp(in(to) + 3, in(from) + 5, size), 0);
    }
};

TEST_F(cuda_kernel, the_driver_copies_until_the_gpu_has_room_for_the_kernel) {
    fill(true);
    const auto source = enrol(from);
    const auto target = enrol(to);
    ASSERT_TRUE(source != nullptr && target != nullptr) << std::strerror(errno);
    for (std::uint8_t round = 1; round < 20; ++round) write(*source, *target, round);
    EXPECT_EQ(count().by_kernels, 0U);
    EXPECT_GT(count().by_driver, 0U);
    fill(false);
    const auto until = steady::now() + std::chrono::seconds(60);
    counts before{};
    do {
        ASSERT_LT(steady::now(), until) << "the kernels do not take over";
        before = count();
        ASSERT_NO_FATAL_FAILURE(write(*source, *target, 77));
    } while (count().by_driver != before.by_driver);
    EXPECT_GT(count().by_kernels, before.by_kernels);
}

TEST_F(cuda_kernel, an_atomic_waits_for_the_kernel) {
    fill(true);
    const auto source = enrol(from);
    const auto target = enrol(to);
    ASSERT_TRUE(source != nullptr && target != nullptr) << std::strerror(errno);
    ASSERT_NO_FATAL_FAILURE(write(*source, *target, 5));
    ibv_sge piece{from.address, 8, source->lkey};
    ibv_send_wr what{};
    ibv_send_wr* bad = nullptr;
    what.sg_list = &piece;
    what.num_sge = 1;
    what.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    what.send_flags = IBV_SEND_SIGNALED;
    what.wr.atomic = {to.address + 8, 3, 0, target->rkey};
    fill(false);
    ASSERT_EQ(ibv_post_send(qp.get(), &what, &bad), 0);
    ibv_wc done{};
    const auto until = steady::now() + std::chrono::seconds(60);
    while (ibv_poll_cq(cq.get(), 1, &done) == 0) ASSERT_LT(steady::now(), until);
    ASSERT_EQ(done.status, IBV_WC_SUCCESS);
    EXPECT_EQ(in(to)[8], 8);
    EXPECT_EQ(in(from)[0], 5);
}

/// UCX and NCCL look for it before they register GPU memory.
constexpr const char* peer_memory_module = "/sys/module/nvidia_peermem/version";

TEST_F(cuda_plugin, shows_the_module_that_programs_look_for) {
    EXPECT_EQ(::access(peer_memory_module, R_OK), 0) << std::strerror(errno);
}

struct without_peer_memory : cuda_plugin {};

TEST_F(without_peer_memory, the_peer_memory_module_is_absent) {
    EXPECT_EQ(::access(peer_memory_module, F_OK), -1);
    EXPECT_EQ(errno, ENOENT);
}

TEST_F(without_peer_memory, registration_is_refused) {
    EXPECT_EQ(enrol(from), nullptr);
    EXPECT_EQ(errno, EFAULT);
}

}  // namespace

int main(int count, char** arguments) {
    ::testing::InitGoogleTest(&count, arguments);
    if (count < 2) return 2;
    // Before the driver is there, nothing is loaded for it.
    static_cast<void>(st::open_device());
    if (::dlopen("libsoftnic_cuda.so", RTLD_LAZY | RTLD_NOLOAD) != nullptr) return 3;
    driver = ::dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    if (driver == nullptr) return 4;
    return RUN_ALL_TESTS();
}
