// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/percentiles.hpp"

#include <accel_transport/channel.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace accel::perf {

/// One measurement: `count` calls of one size, `depth` of them in flight.
struct load {
    std::size_t request_bytes = 64;
    std::size_t response_bytes = 64;
    std::uint64_t count = 10'000;
    std::uint64_t warm_up = 100;
    std::uint32_t depth = 1;
    bool check = false;
};

struct measurement {
    report::latency_summary latency;
    std::chrono::nanoseconds wall{};
    std::chrono::nanoseconds client_cpu{};
    /// Nothing for `local`, where the server's part is in `client_cpu`.
    std::optional<std::chrono::nanoseconds> server_cpu;
};

/// Fails on the first call that fails or answers with wrong bytes.
[[nodiscard]] result<measurement> run_load(channel& to, const load& what);

}  // namespace accel::perf
