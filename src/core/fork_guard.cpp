// SPDX-License-Identifier: Apache-2.0
#include "core/fork_guard.hpp"

#include <new>

#include <pthread.h>

namespace accel::core {
namespace {

struct kept {
    std::shared_ptr<void> owned;
    kept* next = nullptr;
};
constinit std::atomic<kept*> all_kept{nullptr};

/// For objects that the list has no memory for. A leak checker reports them.
union never_destroyed {
    explicit never_destroyed(std::shared_ptr<void> given) noexcept : owned(std::move(given)) {}
    ~never_destroyed() {}  // NOLINT(modernize-use-equals-default): a union's would be deleted
    std::shared_ptr<void> owned;
};

void count_fork() noexcept {
    fork_generation.fetch_add(1, std::memory_order_relaxed);
}

/// Registered when the library is loaded: fork() may come before the first context.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, &count_fork);

}  // namespace

error made_before_fork() {
    return {status::invalid_state, 0,
            "made before fork(): a child must open its own context and make everything else from it"};
}

void keep_for_ever(std::shared_ptr<void> owned) noexcept {
    auto* const made = new (std::nothrow) kept;
    if (made == nullptr) {
        [[maybe_unused]] const never_destroyed unlisted{std::move(owned)};
        return;
    }
    made->owned = std::move(owned);
    made->next = all_kept.load(std::memory_order_relaxed);
    while (!all_kept.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
    }
}

}  // namespace accel::core
