// SPDX-License-Identifier: Apache-2.0
#include "core/tick_scale.hpp"

#include <algorithm>

namespace accel::core {
namespace {

constexpr std::int64_t longest_span = 200'000;
/// The first measure, and later ones.
constexpr std::int64_t short_measure = 1'000'000;
constexpr std::int64_t good_measure = 10'000'000;
constexpr double two_to_32 = 4294967296.0;
/// A processor's counter lies well between these.
constexpr double min_scale = two_to_32 / 64;
constexpr double max_scale = two_to_32 * 64;
/// The scale is that much too small, so that what it tells is late rather than early.
constexpr double slower = 1.0 - 1.0 / 32'768;

}  // namespace

std::int64_t tick_scale::not_before(std::int64_t nanoseconds) const noexcept {
    return std::max(nanoseconds, nanoseconds_after(span_));
}

std::int64_t tick_scale::set(std::uint64_t ticks, std::int64_t nanoseconds) noexcept {
    const std::int64_t told = not_before(nanoseconds);
    if (first_nanoseconds_ == 0) {
        first_ticks_ = ticks;
        first_nanoseconds_ = nanoseconds;
    }
    if (nanoseconds - first_nanoseconds_ >= (known() ? good_measure : short_measure)) measure(ticks, nanoseconds);
    ticks_ = ticks;
    nanoseconds_ = told;
    return told;
}

/// A counter that was set, or a host that slept, shows as a jump of the scale. Then it has to be found anew.
void tick_scale::measure(std::uint64_t ticks, std::int64_t nanoseconds) noexcept {
    const double passed = static_cast<double>(ticks - first_ticks_);
    const double seen = static_cast<double>(nanoseconds - first_nanoseconds_) * two_to_32 / passed * slower;
    const bool usable = seen >= min_scale && seen <= max_scale;
    const auto found = usable ? static_cast<std::uint64_t>(seen) : 0;
    const std::uint64_t change = found > scale_ ? found - scale_ : scale_ - found;
    const bool steady = usable && (scale_ == 0 || change <= scale_ / 1'024);
    scale_ = steady ? found : 0;
    span_ = steady ? static_cast<std::uint64_t>(static_cast<double>(longest_span) * two_to_32 / seen) : 0;
    first_ticks_ = ticks;
    first_nanoseconds_ = nanoseconds;
}

}  // namespace accel::core
