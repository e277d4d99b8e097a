// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"

#include <csignal>
#include <cstdio>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace accel::tests {

/// In a child of fork(): ends the process with a message on standard error if the condition does not hold.
/// Assertions of GoogleTest belong to the parent.
#define CHILD_EXPECT(condition)                                                          \
    do {                                                                                 \
        if (!(condition)) ::accel::tests::fail_in_child(__FILE__, __LINE__, #condition); \
    } while (false)

[[noreturn]] inline void fail_in_child(const char* file, int line, const char* condition) {
    ::dprintf(STDERR_FILENO, "%s:%d: in the child: %s does not hold\n", file, line, condition);
    ::_exit(1);
}

/// A child of fork() that runs a function and ends with `_exit`. Killed and reaped at the latest when this is
/// destroyed.
class child_process {
  public:
    template <class Body>
    explicit child_process(Body body) : pid_(::fork()) {
        if (pid_ != 0) return;
        body();
        ::_exit(0);
    }
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;
    ~child_process() {
        if (pid_ <= 0) return;
        (void)::kill(pid_, SIGKILL);
        (void)::waitpid(pid_, nullptr, 0);
    }

    /// True once it has ended; a failed check or a signal in it is a failure of the test.
    [[nodiscard]] bool ended() {
        int status = 0;
        if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) != pid_) return false;
        if (std::exchange(pid_, -1) > 0) {
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
        }
        return true;
    }

  private:
    pid_t pid_;
};

}  // namespace accel::tests
