// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/metrics.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::examples::serving::doors {

/// What a door has counted, for scrapes. One thread counts; any thread may read.
class door_metrics {
  public:
    using counter = std::atomic<std::uint64_t>;

    /// Answered with this status of HTTP.
    void answered(int http_status) noexcept;
    /// From the header's first byte until the answer was written.
    void took(std::chrono::nanoseconds time) noexcept;
    static void add(counter& to, std::uint64_t by) noexcept { to.fetch_add(by, std::memory_order_relaxed); }
    static void drop(counter& from) noexcept { from.fetch_sub(1, std::memory_order_relaxed); }

    counter connections{};        ///< ever taken
    counter open_connections{};   ///< now
    counter failed_handshakes{};  ///< of TLS
    counter in_flight{};          ///< requests whose header has been read, and whose answer is not written
    counter cancelled{};          ///< calls whose client left first
    counter received_bytes{};     ///< of requests' bodies
    counter sent_bytes{};         ///< of answers, with their headers

    /// As Prometheus has them: accel_door_…
    [[nodiscard]] std::vector<metric_family> families() const;

  private:
    static constexpr int least_status = 100;
    static constexpr std::size_t statuses = 500;
    static constexpr std::size_t buckets = 16;

    [[nodiscard]] metric_family answers() const;
    [[nodiscard]] metric_family times() const;

    std::array<counter, statuses> answers_{};
    std::array<counter, buckets + 1> times_{};  ///< the last one: above the last bucket
    counter total_ns_{};
};

}  // namespace accel::examples::serving::doors
