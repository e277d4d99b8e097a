// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The counts of a context (docs/metrics.md) as plain data, and as text for Prometheus.
namespace accel {

/// The kind of a metric family.
enum class metric_kind : std::uint8_t {
    counter,    ///< never falls while the process lives
    gauge,      ///< the current value
    histogram,  ///< how many values were at most each bound
};

/// A label's name and value.
using metric_label = std::pair<std::string, std::string>;

/// One series of a family.
struct metric {
    /// The number of values that were at most `upper`, including those of the buckets below.
    struct bucket {
        double upper = 0;  ///< in the family's unit
        std::uint64_t count = 0;
    };

    std::vector<metric_label> labels{};
    double value = 0;               ///< counters and gauges; histograms: the sum of all values
    std::uint64_t count = 0;        ///< histograms: number of all values, including those above the last bucket
    std::vector<bucket> buckets{};  ///< histograms: in order of `upper`
};

/// All series with one name.
struct metric_family {
    std::string name{};  ///< with the unit: _seconds, _bytes; counters end in _total
    std::string help{};  ///< one sentence
    metric_kind kind = metric_kind::counter;
    std::vector<metric> series{};
};

/// A snapshot by `context::metrics`. Counters of a busy channel are read one after another and may differ by a call.
struct metrics_snapshot {
    std::vector<metric_family> families{};

    /// The sum over all series with this name and these labels: of `value`, for histograms of `count`. 0 if there are
    /// none.
    [[nodiscard]] ACCEL_API double sum(
        std::string_view name, std::initializer_list<std::pair<std::string_view, std::string_view>> labels = {}) const;
};

/// The snapshot in the text format that Prometheus scrapes (version 0.0.4).
[[nodiscard]] ACCEL_API std::string prometheus_text(const metrics_snapshot& from);

}  // namespace accel
