// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::tests {

/// From here on `number` fails with `failure` in this process, if its first argument is `first` (-1: any).
inline bool forbid_call(long number, long first, int failure) {
    constexpr auto low_word = static_cast<unsigned>(offsetof(seccomp_data, args));
    const auto wanted = static_cast<unsigned>(first);
    auto program = std::to_array<sock_filter>({
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_word),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(failure)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    });
    if (first < 0) program[3].jf = 0;
    const sock_fprog loaded{program.size(), program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaded) == 0;
}

/// Of a child that may not forbid itself anything, or not start threads.
inline constexpr int child_cannot = 77;

/// Runs `body` in a child, which has one thread and may forbid itself system calls. Its exit code; -1: it crashed.
inline int run_in_a_child(const std::function<int()>& body) {
    if (thread_sanitizer) return child_cannot;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int ended = 0;
    if (::waitpid(child, &ended, 0) != child || !WIFEXITED(ended)) return -1;
    return WEXITSTATUS(ended);
}

/// As on a machine without IPv6.
inline bool forbid_ipv6() {
    return forbid_call(SYS_socket, AF_INET6, EAFNOSUPPORT);
}

}  // namespace accel::tests
