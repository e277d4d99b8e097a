// SPDX-License-Identifier: Apache-2.0
#include "perf/output.hpp"

#include "report/program.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accel::perf {
namespace {

using report::microseconds;

double seconds(const outcome& o) {
    return std::chrono::duration<double>(o.seen.wall).count();
}
double operations(const outcome& o) {
    return static_cast<double>(o.what.count);
}
double rate(const outcome& o) {
    return operations(o) / seconds(o);
}

/// Of the direction that carries more.
double gbytes_per_second(const outcome& o) {
    return rate(o) * static_cast<double>(std::max(o.what.request_bytes, o.what.response_bytes)) / 1e9;
}

double client_cpu(const outcome& o) {
    return microseconds(o.seen.client_cpu) / operations(o);
}
double server_cpu(const outcome& o) {
    return microseconds(o.seen.server_cpu.value_or(std::chrono::nanoseconds{})) / operations(o);
}

std::string table_text(const std::vector<outcome>& outcomes) {
    using align = report::table::align;
    report::table table{{{"scheme", align::left},
                         {"size"},
                         {"depth"},
                         {"count"},
                         {"p50 us"},
                         {"p90 us"},
                         {"p99 us"},
                         {"p99.9 us"},
                         {"max us"},
                         {"calls/s"},
                         {"GB/s"},
                         {"CPU us"}}};
    for (const outcome& o : outcomes) {
        const auto& latency = o.seen.latency;
        table.add_row(
            {o.scheme, report::size_text(o.what.request_bytes), std::to_string(o.what.depth),
             std::to_string(o.what.count), fmt::format("{:.1f}", microseconds(latency.p50)),
             fmt::format("{:.1f}", microseconds(latency.p90)), fmt::format("{:.1f}", microseconds(latency.p99)),
             fmt::format("{:.1f}", microseconds(latency.p99_9)), fmt::format("{:.1f}", microseconds(latency.max)),
             fmt::format("{:.0f}", rate(o)), fmt::format("{:.3f}", gbytes_per_second(o)),
             fmt::format("{:.1f}", client_cpu(o) + server_cpu(o))});
    }
    return table.text();
}

nlohmann::json json_of(const outcome& o, const settings& chosen) {
    const auto& latency = o.seen.latency;
    nlohmann::json entry{{"scheme", o.scheme},
                         {"size_bytes", o.what.request_bytes},
                         {"response_bytes", o.what.response_bytes},
                         {"depth", o.what.depth},
                         {"count", o.what.count},
                         {"poll", poll_name(chosen.poll)},
                         {"checked", o.what.check},
                         {"p50_us", microseconds(latency.p50)},
                         {"p90_us", microseconds(latency.p90)},
                         {"p99_us", microseconds(latency.p99)},
                         {"p99_9_us", microseconds(latency.p99_9)},
                         {"max_us", microseconds(latency.max)},
                         {"rate_per_s", rate(o)},
                         {"gbytes_per_s", gbytes_per_second(o)},
                         {"cpu_us_per_op", client_cpu(o) + server_cpu(o)}};
    if (o.seen.server_cpu) {
        entry["client_cpu_us_per_op"] = client_cpu(o);
        entry["server_cpu_us_per_op"] = server_cpu(o);
    }
    return entry;
}

}  // namespace

bool present(const std::vector<outcome>& outcomes, const settings& chosen) {
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(people, "{}", table_text(outcomes));
    fmt::print(people, "GB/s: payload of the larger direction. CPU: both ends, per call.\n");
    if (!report::written(people)) return false;
    if (chosen.json.empty()) return true;
    nlohmann::json results = nlohmann::json::array();
    for (const outcome& o : outcomes) results.push_back(json_of(o, chosen));
    return report::write_json(chosen.json, {{"results", results}});
}

}  // namespace accel::perf
