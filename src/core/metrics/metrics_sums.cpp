// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/metrics_sums.hpp"

#include <accel_transport/target.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace accel::core {

void histogram_sums::add(const duration_histogram& from) noexcept {
    sum_ns += from.sum_ns();
    for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] += from.bucket(i);
}

void histogram_sums::add(const histogram_sums& other) noexcept {
    sum_ns += other.sum_ns;
    for (std::size_t i = 0; i < buckets.size(); ++i) buckets[i] += other.buckets[i];
}

std::uint64_t histogram_sums::count() const noexcept {
    return std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0});
}

void call_sums::add(const call_sums& other) noexcept {
    request_bytes += other.request_bytes;
    response_bytes += other.response_bytes;
    parts += other.parts;
    for (std::size_t i = 0; i < ended.size(); ++i) ended[i] += other.ended[i];
    for (std::size_t i = 0; i < stages.size(); ++i) stages[i].add(other.stages[i]);
}

std::uint64_t call_sums::all_ended() const noexcept {
    return std::accumulate(ended.begin(), ended.end(), std::uint64_t{0});
}

void metrics_sums::add(const server_statistics& one) noexcept {
    servers.sessions += one.sessions;
    servers.memory_bytes += one.memory_bytes;
    servers.gpu_memory_bytes += one.gpu_memory_bytes;
    servers.sessions_opened += one.sessions_opened;
    servers.sessions_refused += one.sessions_refused;
    servers.sessions_lost += one.sessions_lost;
    servers.cpu_user += one.cpu_user;
    servers.cpu_kernel += one.cpu_kernel;
}

void metrics_sums::drop_gauges() noexcept {
    for (auto& [scheme, each] : channels) each.open = each.in_flight = each.quarantined = 0;
    kernels.channels = kernels.in_flight = kernels.quarantined = 0;
    servers.sessions = 0;
    servers.memory_bytes = servers.gpu_memory_bytes = 0;
    open_servers = open_exchanges = 0;
}

namespace {

using labels = std::vector<metric_label>;

/// Buckets below the first count in it, those above the last only in the whole.
constexpr std::size_t first_bucket = 7;  ///< below 256 ns
constexpr std::size_t last_bucket = 36;  ///< below 137 s

constexpr std::array<std::string_view, counted_stages> stage_names{"total",  "request", "response",      "queue",
                                                                   "server", "copy",    "preprocessing", "inference"};

double seconds(std::uint64_t ns) {
    return static_cast<double>(ns) * 1e-9;
}
double seconds(nanoseconds duration) {
    return static_cast<double>(duration.count()) * 1e-9;
}
/// Counters travel as doubles, exact up to 2^53.
double number(std::uint64_t count) {
    return static_cast<double>(count);
}

/// Collects the families, in the order of their pages.
class family_list {
  public:
    void begin(std::string name, std::string help, metric_kind kind) {
        made_.families.push_back({std::move(name), std::move(help), kind, {}});
    }
    void add(labels of, double value) { made_.families.back().series.push_back({std::move(of), value, 0, {}}); }
    void add(labels of, const histogram_sums& from) {
        metric& made = made_.families.back().series.emplace_back();
        made.labels = std::move(of);
        made.value = seconds(from.sum_ns);
        made.count = from.count();
        std::uint64_t below = 0;
        for (std::size_t i = 0; i <= last_bucket; ++i) {
            below += from.buckets[i];
            if (i >= first_bucket) made.buckets.push_back({seconds(std::uint64_t{2} << i), below});
        }
    }
    /// A number of the whole context.
    void single(std::string name, std::string help, metric_kind kind, double value) {
        begin(std::move(name), std::move(help), kind);
        add({}, value);
    }
    [[nodiscard]] metrics_snapshot take() { return std::move(made_); }

  private:
    metrics_snapshot made_;
};

std::string name_of(std::uint64_t target, const target_names& names) {
    if (target == no_target) return "";
    if (target == unknown_target) return "(unknown)";
    if (target == other_targets) return "(other)";
    const auto found = names.find(static_cast<std::uint32_t>(target));
    // A name that looks like one of these three would make two series of one name.
    const bool plain = found != names.end() && found->second.front() != '(' && found->second.front() != '#';
    return plain ? found->second : fmt::format("#{:08x}", target);
}

labels labels_of(const series_key& key, const target_names& names) {
    return {{"role", key.at_server ? "server" : "client"},
            {"scheme", std::string{key.scheme}},
            {"target", name_of(key.target, names)}};
}

labels with(labels list, std::string_view name, std::string_view value) {
    list.emplace_back(name, value);
    return list;
}

void list_calls(family_list& out, const metrics_sums& sums, const target_names& names) {
    out.begin("accel_calls_total", "Ended calls, by status.", metric_kind::counter);
    for (const auto& [key, calls] : sums.calls)
        for (std::size_t i = 0; i < status_count; ++i)
            if (calls.ended[i] > 0 || i == 0)
                out.add(with(labels_of(key, names), "status", to_string(static_cast<status>(i))),
                        number(calls.ended[i]));
    out.begin("accel_request_bytes_total", "Payload bytes of requests: of ended calls, and of parts.",
              metric_kind::counter);
    for (const auto& [key, calls] : sums.calls) out.add(labels_of(key, names), number(calls.request_bytes));
    out.begin("accel_response_bytes_total", "Payload bytes of responses.", metric_kind::counter);
    for (const auto& [key, calls] : sums.calls) out.add(labels_of(key, names), number(calls.response_bytes));
    out.begin("accel_response_parts_total", "Parts of responses that came in parts.", metric_kind::counter);
    for (const auto& [key, calls] : sums.calls)
        if (calls.parts > 0) out.add(labels_of(key, names), number(calls.parts));
    out.begin("accel_stage_seconds", "Durations of the stages of successful calls.", metric_kind::histogram);
    for (const auto& [key, calls] : sums.calls)
        for (std::size_t i = 0; i < counted_stages; ++i)
            if (calls.stages[i].count() > 0)
                out.add(with(labels_of(key, names), "stage", stage_names[i]), calls.stages[i]);
}

void list_channels(family_list& out, const metrics_sums& sums) {
    const auto each = [&](std::string name, std::string help, metric_kind kind, std::uint64_t channel_sums::*field) {
        out.begin(std::move(name), std::move(help), kind);
        for (const auto& [scheme, channels] : sums.channels)
            out.add({{"scheme", std::string{scheme}}}, number(channels.*field));
    };
    each("accel_channels", "Open channels.", metric_kind::gauge, &channel_sums::open);
    each("accel_calls_in_flight", "Calls of channels: submitted, and their completion not yet polled.",
         metric_kind::gauge, &channel_sums::in_flight);
    each("accel_quarantined_slots", "Slots that wait for the late response of an ended call.", metric_kind::gauge,
         &channel_sums::quarantined);
    each("accel_stale_responses_total", "Late responses, recognised and dropped.", metric_kind::counter,
         &channel_sums::stale);
    each("accel_reconnects_total", "Reconnects after a lost connection.", metric_kind::counter,
         &channel_sums::reconnects);
    each("accel_copied_range_bytes_total", "Bytes of range lists that were copied from or to slots.",
         metric_kind::counter, &channel_sums::copied_range_bytes);
}

/// Requests that kernels answer, and calls that they make.
void list_kernels(family_list& out, const kernel_sums& all) {
    using enum metric_kind;
    out.single("accel_kernel_requests_total", "Requests taken by kernels.", counter, number(all.requests));
    out.single("accel_kernel_replies_total", "Replies posted by kernels.", counter, number(all.replies));
    out.single("accel_kernel_expired_requests_total", "Requests for kernels that arrived after their deadline.",
               counter, number(all.expired));
    out.single("accel_kernel_dropped_requests_total",
               "Requests for kernels whose client had disconnected or broke the protocol.", counter,
               number(all.dropped));
    out.single("accel_kernel_channels", "Open channels of kernels.", gauge, number(all.channels));
    out.single("accel_kernel_calls_in_flight", "Calls of kernels: submitted and not yet ended.", gauge,
               number(all.in_flight));
    out.begin("accel_kernel_calls_total", "Ended calls of kernels.", counter);
    out.add({{"outcome", "answered"}}, number(all.answered));
    out.add({{"outcome", "ended_early"}}, number(all.ended_early));
    out.single("accel_kernel_stale_responses_total", "Late responses, recognised and dropped by kernels.", counter,
               number(all.stale));
    out.single("accel_kernel_quarantined_slots", "Slots of kernels that wait for a late response.", gauge,
               number(all.quarantined));
}

void list_servers(family_list& out, const metrics_sums& sums) {
    const server_statistics& all = sums.servers;
    using enum metric_kind;
    out.single("accel_servers", "Open servers.", gauge, number(sums.open_servers));
    out.single("accel_exchanges_open", "Requests taken by servers and not yet answered.", gauge,
               number(sums.open_exchanges));
    out.single("accel_sessions", "Open sessions of servers.", gauge, number(all.sessions));
    out.single("accel_sessions_opened_total", "Sessions opened by servers.", counter, number(all.sessions_opened));
    out.single("accel_sessions_refused_total", "Sessions refused because of a limit, key or version.", counter,
               number(all.sessions_refused));
    out.single("accel_sessions_lost_total", "Sessions that ended with the peer's death or a protocol error.", counter,
               number(all.sessions_lost));
    out.single("accel_slot_memory_bytes", "Bytes of the slots of all sessions.", gauge, number(all.memory_bytes));
    out.single("accel_slot_gpu_memory_bytes", "Bytes of the slots of all sessions on GPUs.", gauge,
               number(all.gpu_memory_bytes));
    out.begin("accel_worker_cpu_seconds_total", "CPU time of the workers' threads.", counter);
    out.add({{"mode", "user"}}, seconds(all.cpu_user));
    out.add({{"mode", "kernel"}}, seconds(all.cpu_kernel));
}

}  // namespace

metrics_snapshot families_of(const metrics_sums& sums, const target_names& names) {
    family_list out;
    list_calls(out, sums, names);
    list_channels(out, sums);
    list_servers(out, sums);
    list_kernels(out, sums.kernels);
    return out.take();
}

}  // namespace accel::core
