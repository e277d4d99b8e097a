// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/metrics/call_series.hpp"
#include "core/metrics/metrics_sums.hpp"

#include <accel_transport/target.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace accel::core {

/// The counters of a worker's calls over one scheme.
struct scheme_series {
    std::string_view scheme;
    server_series untargeted;
    server_series unknown;                                               ///< for targets that the server lacks
    server_series others;                                                ///< for targets without a place
    std::array<std::unique_ptr<server_series>, max_targets> targeted{};  ///< by place

    [[nodiscard]] server_series& of_target(std::size_t place) noexcept {
        return place < targeted.size() ? *targeted[place] : others;
    }
};

/// The counters of a worker, by scheme and target. Its thread writes; snapshots read meanwhile.
class server_metrics {
  public:
    /// Any thread, off the data path. `scheme`: static storage.
    [[nodiscard]] scheme_series* of_scheme(std::string_view scheme);
    /// The place of a target in each scheme's series: the same whenever it is served, and `max_targets` once this
    /// number of targets have one. Any thread, before the worker has the target.
    [[nodiscard]] std::size_t place_of(std::uint32_t target);

    void add_to(metrics_sums& sums) const;

  private:
    mutable std::mutex mutex_;            ///< of the lists; the series stay where they are
    std::vector<std::uint32_t> targets_;  ///< by place
    std::vector<std::unique_ptr<scheme_series>> schemes_;
};

}  // namespace accel::core
