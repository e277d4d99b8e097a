// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/size_mix.hpp"
#include "report/histogram.hpp"
#include "report/timetable.hpp"

#include <accel_transport/channel.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace accel::perf {

using report::arrivals;

/// One measurement: `count` calls of all clients together, each client with `depth` of them in flight.
struct load {
    std::size_t request_bytes = 64;   ///< the longest
    std::size_t response_bytes = 64;  ///< the longest
    size_mix mix;                     ///< of requests; empty: all alike
    bool echoes_size = true;          ///< responses are as long as their requests
    std::uint64_t count = 10'000;
    std::uint64_t warm_up = 100;  ///< of each client
    std::uint32_t depth = 1;
    std::uint32_t clients = 1;
    double rate = 0;  ///< calls due in a second, of all clients together; 0: a closed loop
    arrivals arriving = arrivals::constant;
    std::optional<std::chrono::nanoseconds> duration;  ///< calls are sent for so long, and at most `count`
    bool check = false;
};

struct measurement {
    std::string scheme;
    /// Open loop: from the time at which a call was due, whenever it was sent.
    report::histogram latency;
    report::histogram delay;   ///< open loop: how late calls were sent
    std::uint64_t calls = 0;   ///< answered
    std::uint64_t unsent = 0;  ///< open loop: due before the end, but the clients were behind
    std::uint64_t request_bytes = 0;
    std::uint64_t response_bytes = 0;
    std::chrono::nanoseconds wall{};
    std::chrono::nanoseconds client_cpu{};
    /// Nothing for `local`, where the server's part is in `client_cpu`.
    std::optional<std::chrono::nanoseconds> server_cpu;
};

/// Connects the clients, each with a thread of its own, and runs them. Fails on the first call that fails or answers
/// with wrong bytes. Says on a terminal how far it is, once a second.
[[nodiscard]] result<measurement> run_load(context& ctx, const std::string& uri, const channel_options& options,
                                           const load& what);

}  // namespace accel::perf
