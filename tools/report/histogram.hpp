// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace accel::report {

/// Counts of durations in cells of at most 0.1 % of their value (three significant digits), from 1 ns to `longest`.
/// Recording neither allocates nor takes longer as it fills. Copyable; one thread at a time.
/// Source: the layout and the report are those of HdrHistogram (Gil Tene, hdrhistogram.org), so its tools plot it.
class histogram {
  public:
    static constexpr std::chrono::nanoseconds longest = std::chrono::hours{1};

    histogram();

    /// What is shorter than 0 counts as 0, what is longer than `longest` as that.
    void record(std::chrono::nanoseconds value) noexcept;
    void add(const histogram& other) noexcept;

    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    [[nodiscard]] std::chrono::nanoseconds min() const noexcept;  ///< 0 of none
    [[nodiscard]] std::chrono::nanoseconds max() const noexcept { return max_; }
    [[nodiscard]] double mean_ns() const noexcept;
    [[nodiscard]] double deviation_ns() const noexcept;
    /// The longest duration that its cell holds, and at most `max`: `percent` (0 … 100) of all are no longer. 0 of
    /// none.
    [[nodiscard]] std::chrono::nanoseconds value_at(double percent) const noexcept;

    /// As HdrHistogram's outputPercentileDistribution writes it, in microseconds; with `steps` lines for each halving
    /// of the distance to 100 %.
    [[nodiscard]] std::string percentiles_text(int steps = 5) const;

  private:
    [[nodiscard]] static std::size_t cell_of(std::uint64_t value) noexcept;
    [[nodiscard]] static std::uint64_t last_of(std::size_t cell) noexcept;
    [[nodiscard]] static std::uint64_t middle_of(std::size_t cell) noexcept;

    std::vector<std::uint64_t> cells_;
    std::uint64_t count_ = 0;
    std::chrono::nanoseconds min_ = longest;
    std::chrono::nanoseconds max_{};
};

}  // namespace accel::report
