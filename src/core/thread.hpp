// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <thread>
#include <utility>

#include <pthread.h>

namespace accel::core {

/// Blocks the application's signals in this thread while it lives. Faults of the thread itself stay, and the signal
/// that profilers send to all threads.
class signals_blocked {
  public:
    signals_blocked() noexcept {
        sigset_t all;
        ::sigfillset(&all);
        for (const int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF}) ::sigdelset(&all, each);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    signals_blocked(const signals_blocked&) = delete;
    signals_blocked& operator=(const signals_blocked&) = delete;

  private:
    sigset_t before_;
};

/// A thread of the library: debuggers see its name (at most 15 characters), and it takes none of the application's
/// signals. Throws what std::thread throws.
template <class Body>
[[nodiscard]] std::thread start_thread(const char* name, Body&& body) {
    const signals_blocked for_the_thread;
    std::thread made{std::forward<Body>(body)};
    ::pthread_setname_np(made.native_handle(), name);
    return made;
}

}  // namespace accel::core
