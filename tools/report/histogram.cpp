// SPDX-License-Identifier: Apache-2.0
#include "report/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace accel::report {
namespace {

using std::chrono::nanoseconds;

/// Cells of one power of two. Below twice as many, each value has a cell of its own.
constexpr std::uint64_t half = 1'024;
constexpr int half_bits = 10;

}  // namespace

std::size_t histogram::cell_of(std::uint64_t value) noexcept {
    const int shift = std::max(0, static_cast<int>(std::bit_width(value)) - half_bits - 1);
    return static_cast<std::size_t>(static_cast<std::uint64_t>(shift) * half + (value >> shift));
}

std::uint64_t histogram::last_of(std::size_t cell) noexcept {
    const std::uint64_t shift = cell < 2 * half ? 0 : cell / half - 1;
    return ((cell - shift * half + 1) << shift) - 1;
}

std::uint64_t histogram::middle_of(std::size_t cell) noexcept {
    const std::uint64_t first = cell == 0 ? 0 : last_of(cell - 1) + 1;
    return first + (last_of(cell) - first + 1) / 2;
}

histogram::histogram() : cells_(cell_of(static_cast<std::uint64_t>(longest.count())) + 1) {}

void histogram::record(nanoseconds value) noexcept {
    const nanoseconds held = std::clamp(value, nanoseconds{0}, longest);
    ++cells_[cell_of(static_cast<std::uint64_t>(held.count()))];
    ++count_;
    min_ = std::min(min_, held);
    max_ = std::max(max_, held);
}

void histogram::add(const histogram& other) noexcept {
    std::ranges::transform(cells_, other.cells_, cells_.begin(), std::plus<>{});
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
}

nanoseconds histogram::min() const noexcept {
    return count_ == 0 ? nanoseconds{} : min_;
}

double histogram::mean_ns() const noexcept {
    double sum = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i)
        sum += static_cast<double>(cells_[i]) * static_cast<double>(middle_of(i));
    return count_ == 0 ? 0 : sum / static_cast<double>(count_);
}

double histogram::deviation_ns() const noexcept {
    const double mean = mean_ns();
    double sum = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
        const double distance = static_cast<double>(middle_of(i)) - mean;
        sum += static_cast<double>(cells_[i]) * distance * distance;
    }
    return count_ == 0 ? 0 : std::sqrt(sum / static_cast<double>(count_));
}

nanoseconds histogram::value_at(double percent) const noexcept {
    const double rank = std::ceil(std::clamp(percent, 0.0, 100.0) / 100 * static_cast<double>(count_) - 1e-9);
    const auto wanted = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(rank));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
        seen += cells_[i];
        if (seen >= wanted) return std::min(nanoseconds{static_cast<std::int64_t>(last_of(i))}, max_);
    }
    return max_;
}

std::string histogram::percentiles_text(int steps) const {
    std::string out =
        fmt::format("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    const auto microseconds = [](double ns) { return ns / 1e3; };
    std::uint64_t seen = 0;
    double level = 0;  // the next percentile to write, 0 … 1
    for (std::size_t i = 0; i < cells_.size() && seen < count_; ++i) {
        if (cells_[i] == 0) continue;
        seen += cells_[i];
        const double here = static_cast<double>(seen) / static_cast<double>(count_);
        const double value = microseconds(
            static_cast<double>(std::min<std::uint64_t>(last_of(i), static_cast<std::uint64_t>(max_.count()))));
        while (level <= here) {
            out += fmt::format("{:12.3f} {:2.12f} {:10} {:14.2f}\n", value, level, seen, 1 / (1 - level));
            const double halvings = std::floor(std::log2(1 / (1 - level))) + 1;
            level += 1 / (steps * std::exp2(halvings));
            if (seen == count_) break;
        }
        if (seen == count_) out += fmt::format("{:12.3f} {:2.12f} {:10}\n", value, 1.0, seen);
    }
    out += fmt::format("#[Mean    = {:12.3f}, StdDeviation   = {:12.3f}]\n", microseconds(mean_ns()),
                       microseconds(deviation_ns()));
    out += fmt::format("#[Max     = {:12.3f}, Total count    = {:12}]\n",
                       microseconds(static_cast<double>(max_.count())), count_);
    out += fmt::format("#[Buckets = {:12}, SubBuckets     = {:12}]\n", cells_.size() / half, 2 * half);
    return out;
}

}  // namespace accel::report
