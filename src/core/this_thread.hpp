// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/fork_guard.hpp"

#include <cstdint>

namespace accel::core {

/// A number of the calling thread, never 0, that no other live thread has, and none of a parent process. A few
/// instructions; a thread_local variable would take a call in a shared library that is loaded later.
[[nodiscard]] inline std::uintptr_t this_thread() noexcept {
#if defined(__x86_64__)
    std::uintptr_t pointer = 0;
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    const auto pointer = reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
#else
    static thread_local char mark;
    const auto pointer = reinterpret_cast<std::uintptr_t>(&mark);
#endif
    return pointer + fork_generation.load(std::memory_order_relaxed);
}

}  // namespace accel::core
