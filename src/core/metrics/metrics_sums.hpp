// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/call_series.hpp"

#include <accel_transport/metrics.hpp>
#include <accel_transport/server.hpp>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace accel::core {

/// Numbers of targets that are none: those with a name never are 0, and hashes keep the other two free.
inline constexpr std::uint64_t no_target = 0;
inline constexpr std::uint64_t unknown_target = std::uint64_t{1} << 32;  ///< the server has no such target
inline constexpr std::uint64_t other_targets = std::uint64_t{1} << 33;   ///< more than the client counts apart

/// The calls that a series counts: at which end, of which scheme and target.
struct series_key {
    bool at_server = false;
    std::string_view scheme;  ///< static storage
    std::uint64_t target = no_target;
    friend auto operator<=>(const series_key&, const series_key&) = default;  // NOLINT(modernize-use-nullptr)
};

/// A histogram, read out.
struct histogram_sums {
    std::uint64_t sum_ns = 0;
    std::array<std::uint64_t, duration_histogram::bucket_count> buckets{};

    void add(const duration_histogram& from) noexcept;
    void add(const histogram_sums& other) noexcept;
    [[nodiscard]] std::uint64_t count() const noexcept;
};

/// A `call_series` of either role, read out.
struct call_sums {
    std::uint64_t request_bytes = 0;
    std::uint64_t response_bytes = 0;
    std::uint64_t parts = 0;
    std::array<std::uint64_t, status_count> ended{};  ///< by status
    std::array<histogram_sums, counted_stages> stages{};

    /// The counters of one thread.
    template <class Series>
    void read(const Series& from) noexcept {
        request_bytes = from.request_bytes.read();
        response_bytes = from.response_bytes.read();
        parts = from.parts.read();
        for (std::size_t i = 0; i < status_count; ++i) ended[i] = from.failures[i].read();
        for (std::size_t i = 0; i < Series::stages; ++i) stages[Series::first_stage + i].add(from.durations[i]);
        // The first stage is one that every call has that ended well.
        ended[0] = stages[Series::first_stage].count();
    }
    void add(const call_sums& other) noexcept;
    [[nodiscard]] std::uint64_t all_ended() const noexcept;
    [[nodiscard]] bool is_empty() const noexcept { return parts == 0 && all_ended() == 0; }
};

/// Sums over the channels of one scheme.
struct channel_sums {
    std::uint64_t open = 0;         ///< gauge
    std::uint64_t in_flight = 0;    ///< gauge
    std::uint64_t quarantined = 0;  ///< gauge
    std::uint64_t stale = 0;
    std::uint64_t reconnects = 0;
    std::uint64_t copied_range_bytes = 0;
};

/// Sums over the services and channels of kernels, which report them.
struct kernel_sums {
    std::uint64_t requests = 0;
    std::uint64_t replies = 0;
    std::uint64_t expired = 0;
    std::uint64_t dropped = 0;

    std::uint64_t channels = 0;   ///< gauge
    std::uint64_t in_flight = 0;  ///< gauge
    std::uint64_t answered = 0;
    std::uint64_t ended_early = 0;
    std::uint64_t stale = 0;
    std::uint64_t quarantined = 0;  ///< gauge
};

/// All that a context has counted.
struct metrics_sums {
    std::map<series_key, call_sums> calls;
    std::map<std::string_view, channel_sums> channels;  ///< by scheme
    kernel_sums kernels;
    server_statistics servers;
    std::uint64_t open_servers = 0;    ///< gauge
    std::uint64_t open_exchanges = 0;  ///< gauge

    /// For a server: adds its counters.
    void add(const server_statistics& one) noexcept;
    /// Ends the gauges of open things; counters stay.
    void drop_gauges() noexcept;
};

/// Names by the numbers of their targets.
using target_names = std::map<std::uint32_t, std::string>;

/// The snapshot that users see.
[[nodiscard]] metrics_snapshot families_of(const metrics_sums& sums, const target_names& names);

}  // namespace accel::core
