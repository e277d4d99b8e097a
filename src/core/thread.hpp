// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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

/// The system starts no thread.
class no_thread : public std::system_error {
  public:
    explicit no_thread(const std::error_code& why) : std::system_error(why) {}
};

/// A thread of the library: debuggers see its name (at most 15 characters), and it takes none of the application's
/// signals. Throws `no_thread`.
template <class Body>
[[nodiscard]] std::thread start_thread(const char* name, Body&& body) {
    const signals_blocked for_the_thread;
    try {
        std::thread made{std::forward<Body>(body)};
        ::pthread_setname_np(made.native_handle(), name);
        return made;
    } catch (const std::system_error& refused) {
        throw no_thread(refused.code());
    }
}

/// True: so many threads could be started at once, and have ended again. For code that does not bear it when one
/// cannot.
[[nodiscard]] inline bool room_for_threads(std::size_t count) {
    std::atomic<bool> over{false};
    std::vector<std::thread> made;
    made.reserve(count);
    bool room = true;
    try {
        while (made.size() < count) made.push_back(start_thread("accel-trial", [&over] { over.wait(false); }));
    } catch (const std::exception&) {
        room = false;
    }
    over = true;
    over.notify_all();
    for (std::thread& each : made) each.join();
    return room;
}

}  // namespace accel::core
