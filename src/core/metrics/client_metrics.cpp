// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/client_metrics.hpp"

#include <algorithm>

namespace accel::core {

/// A call for a target, a failed one, or a part.
[[gnu::noinline]] void client_metrics::count_apart(const call_outcome& c, const asked_for& asked) noexcept {
    client_series& to = series_of(asked.target);
    if (c.more) {
        to.parts.add();
        return to.response_bytes.add(c.response.size());
    }
    if (c.status == status::ok) return count_answered(to, c, asked.length);
    to.request_bytes.add(asked.length);
    to.response_bytes.add(c.response.size());
    to.failures[static_cast<std::size_t>(c.status)].add();
}

/// The first that are called take the places; they keep them, so a reader that sees one sees its target.
client_series& client_metrics::series_of(std::uint32_t target) noexcept {
    if (target == 0) return untargeted_;
    for (own_series& each : targeted_) {
        const std::uint32_t held = each.target.load(std::memory_order_relaxed);
        if (held == target) return each.series;
        if (held != 0) continue;
        each.target.store(target, std::memory_order_relaxed);
        return each.series;
    }
    return others_;
}

void client_metrics::add_to(metrics_sums& sums) const {
    // First, so that calls that come and go meanwhile are not taken for calls in flight.
    const std::uint64_t submitted = submitted_.read();
    std::uint64_t ended = 0;
    const auto add = [&](std::uint64_t target, const client_series& series) {
        call_sums own;
        own.read(series);
        if (own.is_empty()) return;
        ended += own.all_ended();
        sums.calls[{false, scheme_, target}].add(own);
    };
    add(no_target, untargeted_);
    for (const own_series& each : targeted_)
        if (const std::uint32_t target = each.target.load(std::memory_order_relaxed); target != 0)
            add(target, each.series);
    add(other_targets, others_);
    channel_sums& channels = sums.channels[scheme_];
    ++channels.open;
    channels.in_flight += submitted - std::min(ended, submitted);
    channels.quarantined += quarantined_.read();
    channels.stale += stale_.read();
    channels.reconnects += reconnects_.read();
    channels.copied_range_bytes += copied_bytes_.read();
}

}  // namespace accel::core
