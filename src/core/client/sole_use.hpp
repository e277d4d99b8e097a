// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/fork_guard.hpp"
#include "core/this_thread.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

/// Builds with assertions (without NDEBUG) notice two threads in one channel at the same time, and end the process. A
/// channel may go from thread to thread. Other builds have no code for this.
namespace accel::core {

#ifdef NDEBUG

class sole_use {
  public:
    class visit {};
    [[nodiscard]] static visit enter(const char* /*function*/) noexcept { return {}; }
};

#else

class sole_use {
  public:
    /// The time of one of the application's calls.
    class visit {
      public:
        explicit visit(sole_use* of) noexcept : of_(of) {}
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;
        ~visit() {
            if (of_ != nullptr) of_->thread_.store(0, std::memory_order_relaxed);
        }

      private:
        sole_use* of_;
    };
    /// Ends the process if another thread is inside. Relaxed, so that ThreadSanitizer still sees what is not ordered.
    [[nodiscard]] visit enter(const char* function) noexcept {
        std::uintptr_t inside = 0;
        const std::uintptr_t here = this_thread();
        if (thread_.compare_exchange_strong(inside, here, std::memory_order_relaxed)) {
            function_.store(function, std::memory_order_relaxed);
            return visit{this};
        }
        if (inside != here && !stamp_.inherited()) end_two_threads(function);
        return visit{nullptr};  // further out is this thread, or one of a parent process
    }

  private:
    [[noreturn]] void end_two_threads(const char* function) const noexcept {
        const char* const other = function_.load(std::memory_order_relaxed);
        std::fprintf(stderr,
                     "accel: two threads use one channel at the same time: channel::%s was called while another thread "
                     "was in channel::%s; use shared_channel or channel_pool, or one channel for each thread\n",
                     function, other == nullptr ? "?" : other);
        std::abort();
    }

    process_stamp stamp_;
    std::atomic<std::uintptr_t> thread_{0};  ///< inside; 0: none
    std::atomic<const char*> function_{nullptr};
};

#endif

}  // namespace accel::core
