// SPDX-License-Identifier: Apache-2.0
// Between two polls the kernel is not asked for anything. The thread that drives both ends is put under a
// filter that ends the process at the first system call; run with a device that moves inside the calls to it
// (softnic, deterministic).
#include "conformance/rig.hpp"
#include "softnic/softnic.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace accel::tests {
namespace {

/// From now on this thread may end the process and nothing else. (Reading the clock is a call into the kernel
/// where there is no vDSO for it.)
bool forbid_system_calls() {
    std::array<sock_filter, 6> program{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};  // namespace
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}  // namespace accel::tests

/// The device of this mode sees a doorbell when it is asked to look; libmlx5's calls would ask it.
void let_the_device_move() {
    for (int rounds = 0; rounds < 64 && softnic_progress() > 0; ++rounds) continue;
}

bool call_once(channel& client, server& served) {
    const auto call = client.begin();
    if (!call || client.submit(call->id, 64) != status::ok) return false;
    completion done;
    std::size_t count = 0;
    for (int patience = 0; count == 0 && patience < 10'000; ++patience) {
        let_the_device_move();
        served.poll();
        let_the_device_move();
        count = client.poll({&done, 1});
    }
    return count == 1 && done.status == status::ok;
}

constexpr int all_calls_went_well = 40;
constexpr int a_call_failed = 41;
constexpr int no_filter = 42;

/// Does not return.
void make_calls(bool ask_the_kernel) {
    const auto& all = all_backends();
    const auto row = std::find_if(all.begin(), all.end(), [](auto& r) { return r.scheme == "rdma"; });
    server_options options = calm_server();
    options.workers = 0;
    options.peer_timeout = 600s;
    rig r(*row, echo, options);
    channel_options client_options = calm_client();
    client_options.peer_timeout = 600s;
    auto client = r.connect(client_options);
    for (int i = 0; i < 1'000; ++i)
        if (!call_once(client.raw(), r.served())) ::_exit(a_call_failed);
    if (!forbid_system_calls()) ::_exit(no_filter);
    for (int i = 0; i < 20'000; ++i) {
        if (!call_once(client.raw(), r.served())) ::_exit(a_call_failed);
        if (ask_the_kernel && i == 10'000) (void)::getppid();
    }
    ::_exit(all_calls_went_well);
}

class rdma_busy : public ::testing::Test {
  protected:
    rdma_busy() {
        GTEST_FLAG_SET(death_test_style, "threadsafe");  // the device does not live through a fork
    }
};

TEST_F(rdma_busy, makes_no_system_call_between_polls) {
    EXPECT_EXIT(make_calls(false), ::testing::ExitedWithCode(all_calls_went_well), "");
}

TEST_F(rdma_busy, a_system_call_between_polls_would_be_caught) {
    EXPECT_EXIT(make_calls(true), ::testing::KilledBySignal(SIGSYS), "");
}

}  // namespace
}  // namespace accel::tests
