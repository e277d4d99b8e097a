// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/socket_address.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

/// Names of hosts. The system's resolver takes as long as its name server lets it, so a thread of its own waits for it,
/// which the caller leaves at its deadline.
namespace accel::core {

/// For callers without a deadline, such as a server that begins to listen. The resolver itself gives up after 10 s,
/// usually.
inline constexpr nanoseconds name_patience = std::chrono::seconds{60};

/// What getaddrinfo says.
struct name_outcome {
    int failure = 0;                          ///< one of EAI_…
    int native = 0;                           ///< errno, for EAI_SYSTEM
    std::vector<socket_address> addresses{};  ///< of TCP, with port 0
};
/// Asks on the caller's thread. `host` may be null; `flags` as AI_…
[[nodiscard]] name_outcome ask_resolver(const char* host, int flags);
/// The error of an outcome that failed.
[[nodiscard]] error cannot_resolve(const std::string& host, const name_outcome& outcome);

/// The addresses of a name, by `deadline`: `timed_out` then, and `closed` once `stopped`. Callers that want the same
/// name at the same time share one thread. A process has at most `max_lookups`; whoever wants another name waits for
/// one of them to end.
[[nodiscard]] result<std::vector<socket_address>> look_up(const std::string& host, nanoseconds deadline,
                                                          const std::stop_token& stopped);
inline constexpr std::size_t max_lookups = 16;

}  // namespace accel::core
