// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

namespace accel::core {

/// Ends the process with a sentence: the program used an object after it was moved from.
[[noreturn, gnu::cold, gnu::noinline]] inline void end_moved_from(const char* type) noexcept {
    std::fprintf(stderr, "accel: a %s was used after it was moved from\n", type);
    std::abort();
}

/// The state behind a public object of this type; an object that was moved from has nothing behind it.
template <class Pointer>
[[nodiscard]] auto& behind(const Pointer& handle, const char* type) noexcept {
    if (handle == nullptr) [[unlikely]]
        end_moved_from(type);
    return *handle;
}

}  // namespace accel::core
