// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/servers/door_metrics.hpp"

#include <algorithm>
#include <string>

namespace accel::examples::serving::doors {
namespace {

/// Upper ends of the buckets, in seconds.
constexpr std::array uppers{1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2,
                            5e-2, 0.1,    0.25, 0.5,  1.0,    2.5,  5.0,  10.0};

std::uint64_t seen(const door_metrics::counter& from) noexcept {
    return from.load(std::memory_order_relaxed);
}

metric_family one(const char* name, const char* help, metric_kind kind, const door_metrics::counter& from) {
    return {.name = name, .help = help, .kind = kind, .series = {{.value = static_cast<double>(seen(from))}}};
}

}  // namespace

void door_metrics::answered(int http_status) noexcept {
    const int at = std::clamp(http_status - least_status, 0, static_cast<int>(statuses) - 1);
    add(answers_[static_cast<std::size_t>(at)], 1);
}

void door_metrics::took(std::chrono::nanoseconds time) noexcept {
    static_assert(uppers.size() == buckets);
    const double seconds = std::chrono::duration<double>(time).count();
    const auto bucket = std::ranges::lower_bound(uppers, seconds) - uppers.begin();
    add(times_[static_cast<std::size_t>(bucket)], 1);
    add(total_ns_, static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0)));
}

metric_family door_metrics::answers() const {
    metric_family out{.name = "accel_door_requests_total", .help = "Requests answered, by the status of HTTP."};
    for (std::size_t i = 0; i < statuses; ++i) {
        const std::uint64_t count = seen(answers_[i]);
        const std::string status = std::to_string(static_cast<std::size_t>(least_status) + i);
        if (count > 0) out.series.push_back({.labels = {{"status", status}}, .value = static_cast<double>(count)});
    }
    return out;
}

metric_family door_metrics::times() const {
    metric all{.value = static_cast<double>(seen(total_ns_)) / 1e9};
    for (std::size_t i = 0; i < buckets; ++i) {
        all.count += seen(times_[i]);
        all.buckets.push_back({uppers[i], all.count});
    }
    all.count += seen(times_.back());
    return {.name = "accel_door_request_seconds",
            .help = "From the header's first byte until the answer was written.",
            .kind = metric_kind::histogram,
            .series = {all}};
}

std::vector<metric_family> door_metrics::families() const {
    return {answers(),
            times(),
            one("accel_door_requests_in_flight", "Requests without an answer yet.", metric_kind::gauge, in_flight),
            one("accel_door_cancelled_total", "Calls whose client left first.", metric_kind::counter, cancelled),
            one("accel_door_connections", "Connections of clients.", metric_kind::gauge, open_connections),
            one("accel_door_connections_total", "Connections ever taken.", metric_kind::counter, connections),
            one("accel_door_failed_handshakes_total", "Connections that came to no TLS.", metric_kind::counter,
                failed_handshakes),
            one("accel_door_received_bytes_total", "Bytes of requests' bodies.", metric_kind::counter, received_bytes),
            one("accel_door_sent_bytes_total", "Bytes of answers.", metric_kind::counter, sent_bytes)};
}

}  // namespace accel::examples::serving::doors
