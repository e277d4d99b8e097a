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

/// The kind of a family's numbers.
enum class metric_kind : std::uint8_t {
    counter,    ///< only rises while the process lives
    gauge,      ///< as it is now
    histogram,  ///< how often a value was at most so large
};

/// A label's name and value.
using metric_label = std::pair<std::string, std::string>;

/// So many of the values were at most `upper`; the buckets below count too.
struct metric_bucket {
    double upper = 0;  ///< in the unit of the family
    std::uint64_t count = 0;
};

/// One series of a family.
struct metric {
    std::vector<metric_label> labels{};
    double value = 0;                      ///< counters and gauges; of a histogram the sum of all values
    std::uint64_t count = 0;               ///< histograms: of all values, also those above the last bucket
    std::vector<metric_bucket> buckets{};  ///< histograms: by rising `upper`
};

/// All series of one name.
struct metric_family {
    std::string name{};  ///< the unit is in it: _seconds, _bytes; counters end in _total
    std::string help{};  ///< one sentence
    metric_kind kind = metric_kind::counter;
    std::vector<metric> series{};
};

/// A snapshot by `context::metrics`. Counters of one channel are read one after the other while it works: they
/// may be a call apart.
struct metrics_snapshot {
    std::vector<metric_family> families{};

    /// The sum over all series of that name with these labels: of `value`, and for histograms of `count`. 0 if there
    /// is none.
    [[nodiscard]] ACCEL_API double sum(
        std::string_view name, std::initializer_list<std::pair<std::string_view, std::string_view>> labels = {}) const;
};

/// The snapshot in the text format that Prometheus scrapes (version 0.0.4).
[[nodiscard]] ACCEL_API std::string prometheus_text(const metrics_snapshot& from);

}  // namespace accel
