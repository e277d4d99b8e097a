// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/counting/door_metrics.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::doors {
namespace {

/// Upper ends of the buckets, in nanoseconds.
constexpr std::array<std::int64_t, 16> uppers_ns{
    100'000,    250'000,     500'000,     1'000'000,   2'500'000,     5'000'000,     10'000'000,    25'000'000,
    50'000'000, 100'000'000, 250'000'000, 500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};
constexpr double ns_of_a_second = 1e9;

constexpr std::array<const char*, request_stages> stage_names{"receive", "slot", "call", "answer"};

std::uint64_t seen(const door_metrics::counter& from) noexcept {
    return from.load(std::memory_order_relaxed);
}

metric counted(const door_metrics::counter& from) {
    return {.value = static_cast<double>(seen(from))};
}

}  // namespace

void duration_counts::add(std::chrono::nanoseconds time) noexcept {
    static_assert(uppers_ns.size() == buckets);
    const std::int64_t took = std::max<std::int64_t>(time.count(), 0);
    const auto bucket = std::ranges::lower_bound(uppers_ns, took) - uppers_ns.begin();
    door_metrics::add(counts_[static_cast<std::size_t>(bucket)], 1);
    door_metrics::add(total_ns_, static_cast<std::uint64_t>(took));
}

metric duration_counts::read() const {
    metric out{.value = static_cast<double>(seen(total_ns_)) / ns_of_a_second};
    for (std::size_t i = 0; i < buckets; ++i) {
        out.count += seen(counts_[i]);
        out.buckets.push_back({static_cast<double>(uppers_ns[i]) / ns_of_a_second, out.count});
    }
    out.count += seen(counts_.back());
    return out;
}

door_metrics::door_metrics(std::string_view door, std::span<const status_name> statuses,
                           std::vector<std::string> models, std::size_t memory_bytes)
    : memory(std::make_shared<memory_budget>(memory_bytes)),
      door_(door),
      statuses_(statuses),
      models_{"", "(unknown)"} {
    std::ranges::move(models, std::back_inserter(models_));
    for (std::size_t i = 0; i < models_.size(); ++i) {
        rows_.push_back(std::make_unique<model_metrics>());
        rows_.back()->answers = std::vector<counter>(statuses.size());
    }
}

std::size_t door_metrics::index_of(int status) const noexcept {
    const auto found = std::ranges::find(statuses_, status, &status_name::code);
    return std::min<std::size_t>(static_cast<std::size_t>(found - statuses_.begin()), statuses_.size() - 1);
}

/// Puts the series of several doors into the families that they share.
class family_writer {
  public:
    explicit family_writer(std::span<const door_metrics* const> doors) : doors_(doors) {}

    /// One series for each door.
    void of_doors(const char* name, const char* help, metric_kind kind, door_metrics::counter door_metrics::*what) {
        metric_family& to = begin(name, help, kind);
        for (const door_metrics* each : doors_) put(to, *each, counted(each->*what), {});
    }

    void memory() {
        metric_family& to = begin("accel_door_memory_bytes", "Memory of JSON and of inflated messages (json_memory).",
                                  metric_kind::gauge);
        for (const door_metrics* each : doors_)
            put(to, *each, {.value = static_cast<double>(each->memory->taken())}, {});
    }

    /// `read` makes a series of a row.
    template <typename Read>
    void of_models(const char* name, const char* help, metric_kind kind, Read read) {
        metric_family& to = begin(name, help, kind);
        each_row([&](const door_metrics& door, std::size_t i) { put_row(to, door, i, read(*door.rows_[i]), {}); });
    }

    /// Only statuses that were answered.
    void answers() {
        metric_family& to =
            begin("accel_door_requests_total", "Answered requests, by the protocol's status.", metric_kind::counter);
        each_row([&](const door_metrics& door, std::size_t i) {
            for (std::size_t s = 0; s < door.statuses_.size(); ++s)
                if (metric one = counted(door.rows_[i]->answers[s]); one.value > 0)
                    put_row(to, door, i, std::move(one), {{"status", std::string{door.statuses_[s].name}}});
        });
    }

    void stages() {
        metric_family& to =
            begin("accel_door_stage_seconds", "Stages of inference requests that got a slot.", metric_kind::histogram);
        each_row([&](const door_metrics& door, std::size_t i) {
            for (std::size_t s = 0; s < request_stages && i >= door_metrics::first_model; ++s)
                put_row(to, door, i, door.rows_[i]->stages[s].read(), {{"stage", stage_names[s]}});
        });
    }

    [[nodiscard]] std::vector<metric_family> take() { return std::move(out_); }

  private:
    metric_family& begin(const char* name, const char* help, metric_kind kind) {
        return out_.emplace_back(metric_family{.name = name, .help = help, .kind = kind});
    }

    template <typename Do>
    void each_row(Do what) {
        for (const door_metrics* each : doors_)
            for (std::size_t i = 0; i < each->rows_.size(); ++i) what(*each, i);
    }

    static void put(metric_family& to, const door_metrics& door, metric one, std::vector<metric_label> more) {
        one.labels = std::move(more);
        one.labels.insert(one.labels.begin(), {"door", std::string{door.door_}});
        to.series.push_back(std::move(one));
    }
    static void put_row(metric_family& to, const door_metrics& door, std::size_t i, metric one,
                        std::vector<metric_label> more) {
        more.insert(more.begin(), {"model", door.models_[i]});
        put(to, door, std::move(one), std::move(more));
    }

    std::span<const door_metrics* const> doors_;
    std::vector<metric_family> out_;
};

std::vector<metric_family> door_families(std::span<const door_metrics* const> doors) {
    using enum metric_kind;
    family_writer out{doors};
    const auto row_of = [](auto what) { return [what](const model_metrics& row) { return counted(row.*what); }; };
    out.answers();
    out.of_models("accel_door_request_seconds", "From a request's first byte until the answer was written.", histogram,
                  [](const model_metrics& row) { return row.whole.read(); });
    out.stages();
    out.of_models("accel_door_requests_in_flight", "Requests that are not answered yet.", gauge,
                  row_of(&model_metrics::in_flight));
    out.of_models("accel_door_cancelled_total", "Requests whose client disconnected before the answer.", counter,
                  row_of(&model_metrics::cancelled));
    out.of_models("accel_door_received_bytes_total", "Bytes of requests' bodies.", counter,
                  row_of(&model_metrics::received_bytes));
    out.of_models("accel_door_sent_bytes_total", "Bytes of answers.", counter, row_of(&model_metrics::sent_bytes));
    out.of_doors("accel_door_connections", "Open connections of clients.", gauge, &door_metrics::open_connections);
    out.of_doors("accel_door_connections_total", "Connections accepted since the start.", counter,
                 &door_metrics::connections);
    out.of_doors("accel_door_failed_handshakes_total", "Connections whose TLS handshake failed.", counter,
                 &door_metrics::failed_handshakes);
    out.memory();
    return out.take();
}

}  // namespace accel::examples::serving::doors
