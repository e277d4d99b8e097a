// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/thread.hpp"

#include <accel_transport/status.hpp>

#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <system_error>

namespace accel::core {

/// A thread that has found no memory tries again after it.
inline constexpr std::chrono::milliseconds pause_without_memory{10};

/// Why no thread was started. If memory has run out too, the text is short.
[[nodiscard]] inline error describe(const no_thread& refused) noexcept {
    const int number = refused.code().value();
    try {
        const bool used_up = refused.code() == std::errc::resource_unavailable_try_again;
        return {status::system_error, number,
                used_up ? "no thread can be started: raise the limit of processes (ulimit -u, or pids.max of the "
                          "cgroup)"
                        : "no thread can be started (" + refused.code().message() +
                              "); look at the container's seccomp profile"};
    } catch (const std::bad_alloc&) {
        return {status::system_error, number, "no more threads"};
    }
}

/// What `body` returns, a `result`; where the system has no memory or no thread for it, an error. For control paths,
/// which own what they make from its first moment on.
template <class Body>
[[nodiscard]] auto guarded(Body&& body) -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return error{status::out_of_memory, ENOMEM, "out of memory"};  // as short as a string is without memory
    } catch (const no_thread& refused) {
        return describe(refused);
    }
}

}  // namespace accel::core
