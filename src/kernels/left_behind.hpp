// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <utility>

namespace accel::gpu {

/// Keeps until the process ends what a driver that does not return may still use. Any thread. Where leak checkers see
/// it: this is on purpose.
template <class Thing>
void leave_behind(std::unique_ptr<Thing> what) noexcept {
    struct kept {
        Thing* what;
        kept* next;
    };
    static std::atomic<kept*> newest{nullptr};
    Thing* const thing = what.release();
    auto* const made = new (std::nothrow) kept{thing, newest.load(std::memory_order_relaxed)};
    if (made == nullptr) return;
    while (!newest.compare_exchange_weak(made->next, made, std::memory_order_release, std::memory_order_relaxed)) {
    }
}

}  // namespace accel::gpu
