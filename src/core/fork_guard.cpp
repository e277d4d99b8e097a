// SPDX-License-Identifier: Apache-2.0
#include "core/fork_guard.hpp"

#include <pthread.h>

namespace accel::core {
namespace {

struct kept {
    std::shared_ptr<void> owned;
    kept* next = nullptr;
};
constinit std::atomic<kept*> all_kept{nullptr};

void count_fork() noexcept {
    fork_generation.fetch_add(1, std::memory_order_relaxed);
}

/// Registered when the library is loaded: fork() may come before the first context.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, &count_fork);

}  // namespace

error made_before_fork() {
    return {status::invalid_state, 0,
            "made before fork(): a child makes its own context, and everything else from that"};
}

void keep_for_ever(std::shared_ptr<void> owned) {
    auto made = std::make_unique<kept>();
    made->owned = std::move(owned);
    made->next = all_kept.load(std::memory_order_relaxed);
    while (!all_kept.compare_exchange_weak(made->next, made.get(), std::memory_order_acq_rel)) {
    }
    (void)made.release();  // NOLINT(bugprone-unused-return-value): the list has it
}

}  // namespace accel::core
