// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/call_series.hpp"
#include "core/metrics/metrics_sums.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace accel::core {

/// The counters of a worker, by scheme and target. Its thread writes; snapshots read meanwhile.
class server_metrics {
  public:
    /// `targets`: in the order of the worker's `target_table`.
    explicit server_metrics(std::vector<std::uint32_t> targets) : targets_(std::move(targets)) {}

    /// The series of a scheme. Behind the one for requests without a target are those of the targets, then that of
    /// targets which the server lacks. Any thread, off the data path. `scheme`: static storage.
    [[nodiscard]] server_series* of_scheme(std::string_view scheme);
    [[nodiscard]] std::size_t unknown() const noexcept { return 1 + targets_.size(); }

    void add_to(metrics_sums& sums) const;

  private:
    struct of_one {
        std::string_view scheme;
        std::vector<server_series> series;
    };
    std::vector<std::uint32_t> targets_;
    mutable std::mutex mutex_;  ///< of the list; the series stay where they are
    std::vector<std::unique_ptr<of_one>> schemes_;
};

}  // namespace accel::core
