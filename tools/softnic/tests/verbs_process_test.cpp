// SPDX-License-Identifier: Apache-2.0
// The preload library beside what else goes on in a process: forks, libraries that are loaded. Through the stock
// libraries, in every poll mode.
#include "verbs_fixture.hpp"

#include <array>
#include <chrono>
#include <thread>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace st = accel::softnic::testing;

using st::all_access;

/// A library may close files before softnic's constructors have run. What it sets up then is of use all the same.
void use_it_early() {
    ::close(-1);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const early)() = use_it_early;

struct process : st::verbs_fixture {};

/// A write from one queue pair of this process to another.
bool writes_to_itself() {
    std::array<std::uint8_t, 64> from{1, 2, 3};
    std::array<std::uint8_t, 64> to{};
    const st::context_owner context = st::open_device();
    const st::pd_owner pd(ibv_alloc_pd(context.get()));
    const st::mr_owner from_mr(ibv_reg_mr(pd.get(), from.data(), from.size(), all_access));
    const st::mr_owner to_mr(ibv_reg_mr(pd.get(), to.data(), to.size(), all_access));
    const st::cq_owner cq(ibv_create_cq(context.get(), 16, nullptr, nullptr, 0));
    const st::qp_owner one = st::make_qp(pd.get(), cq.get(), cq.get());
    const st::qp_owner other = st::make_qp(pd.get(), cq.get(), cq.get());
    ibv_port_attr port{};
    if (ibv_query_port(context.get(), 1, &port) != 0) return false;
    st::connect(one.get(), other.get(), port.lid);
    ibv_sge piece{reinterpret_cast<std::uint64_t>(from.data()), from.size(), from_mr->lkey};
    ibv_send_wr what{};
    what.sg_list = &piece;
    what.num_sge = 1;
    what.opcode = IBV_WR_RDMA_WRITE;
    what.send_flags = IBV_SEND_SIGNALED;
    what.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(to.data());
    what.wr.rdma.rkey = to_mr->rkey;
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(one.get(), &what, &bad) != 0) return false;
    ibv_wc done{};
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (ibv_poll_cq(cq.get(), 1, &done) == 0)
        if (std::chrono::steady_clock::now() > deadline) return false;
    return done.status == IBV_WC_SUCCESS && to == from;
}

TEST_F(process, a_forked_process_opens_devices_of_its_own) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(writes_to_itself() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ibv_sge piece{};
    auto what = request(IBV_WR_RDMA_WRITE, piece, 8);
    post(qp.get(), what);
    EXPECT_EQ(wait(cq.get()).status, IBV_WC_SUCCESS) << "the parent goes on";
}

// The loader holds a lock while a library's constructor runs, and a registration looks for the CUDA driver.
TEST_F(process, loads_libraries_that_close_files_beside_registrations) {
    std::thread loading([] {
        void* const library = ::dlopen(SOFTNIC_SLOW_LIBRARY, RTLD_NOW);
        EXPECT_NE(library, nullptr) << ::dlerror();
        if (library != nullptr) ::dlclose(library);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    EXPECT_TRUE(st::mr_owner(ibv_reg_mr(pd.get(), from.data(), from.size(), all_access)));
    loading.join();
}

}  // namespace
