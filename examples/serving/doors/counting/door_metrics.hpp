// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/counting/memory_budget.hpp"

#include <accel_transport/metrics.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::doors {

/// Where a request for inference is in a door, in this order.
enum class request_stage : std::uint8_t { receive, slot, call, answer };
inline constexpr std::size_t request_stages = 4;

/// A status that a door answers with, as scrapes show it.
struct status_name {
    int code;
    std::string_view name;
};

/// How often something took so long. Any thread counts and reads.
class duration_counts {
  public:
    void add(std::chrono::nanoseconds time) noexcept;
    /// A series of a histogram, in seconds.
    [[nodiscard]] metric read() const;

  private:
    static constexpr std::size_t buckets = 16;

    std::array<std::atomic<std::uint64_t>, buckets + 1> counts_{};  ///< the last one: above the last bucket
    std::atomic<std::uint64_t> total_ns_{0};
};

/// Counters of the requests of one label `model`.
struct model_metrics {
    using counter = std::atomic<std::uint64_t>;

    std::vector<counter> answers;  ///< by the door's statuses
    counter in_flight{};           ///< requests without an answer
    counter cancelled{};           ///< requests whose client left first
    counter received_bytes{};      ///< of requests' bodies
    counter sent_bytes{};          ///< of answers
    duration_counts whole;
    std::array<duration_counts, request_stages> stages;
};

/// What a door has counted, for scrapes. Any thread counts and reads.
class door_metrics {
  public:
    using counter = model_metrics::counter;

    /// Rows of the label `model` before those of the door's own models.
    static constexpr std::size_t no_model = 0;       ///< ""
    static constexpr std::size_t unknown_model = 1;  ///< "(unknown)": whatever name clients think of
    static constexpr std::size_t first_model = 2;

    /// `door`: "http". `statuses`: those it answers with, success first; all others count as the last one. Both have to
    /// outlive it. `models` are the rows from `first_model` on. `memory_bytes`: of `memory`.
    door_metrics(std::string_view door, std::span<const status_name> statuses, std::vector<std::string> models,
                 std::size_t memory_bytes);

    [[nodiscard]] model_metrics& row(std::size_t model) noexcept { return *rows_[model]; }
    /// Of `model_metrics::answers`.
    [[nodiscard]] std::size_t index_of(int status) const noexcept;
    static void add(counter& to, std::uint64_t by) noexcept { to.fetch_add(by, std::memory_order_relaxed); }
    static void drop(counter& from, std::uint64_t by = 1) noexcept { from.fetch_sub(by, std::memory_order_relaxed); }

    counter connections{};        ///< ever taken
    counter open_connections{};   ///< now
    counter failed_handshakes{};  ///< of TLS
    /// For texts and inflated messages. Handlers in the loop may hold shares longer than the door is there.
    const std::shared_ptr<memory_budget> memory;

  private:
    friend class family_writer;

    std::string_view door_;
    std::span<const status_name> statuses_;
    std::vector<std::string> models_;
    std::vector<std::unique_ptr<model_metrics>> rows_;  ///< stay where they are
};

/// What these doors have counted, as Prometheus has it: accel_door_…
[[nodiscard]] std::vector<metric_family> door_families(std::span<const door_metrics* const> doors);

}  // namespace accel::examples::serving::doors
