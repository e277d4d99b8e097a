// SPDX-License-Identifier: Apache-2.0
#include "perf/output.hpp"

#include "perf/histogram_file.hpp"
#include "report/percentiles.hpp"
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
    return static_cast<double>(o.seen.calls);
}
double rate(const outcome& o) {
    return operations(o) / seconds(o);
}

/// Of the direction that carries more.
double gbytes_per_second(const outcome& o) {
    return static_cast<double>(std::max(o.seen.request_bytes, o.seen.response_bytes)) / seconds(o) / 1e9;
}

/// 0 if no call ended.
double per_call(const outcome& o, std::chrono::nanoseconds all) {
    return o.seen.calls == 0 ? 0 : microseconds(all) / static_cast<double>(o.seen.calls);
}
double client_cpu(const outcome& o) {
    return per_call(o, o.seen.client_cpu);
}
double server_cpu(const outcome& o) {
    return per_call(o, o.seen.server_cpu.value_or(std::chrono::nanoseconds{}));
}

double percentile_us(const outcome& o, double percent) {
    return microseconds(o.seen.latency.value_at(percent));
}

std::string size_of(const outcome& o) {
    return o.what.mix.empty() ? report::size_text(o.what.request_bytes) : "mix";
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
    const auto short_text = [](double value) { return fmt::format("{:.1f}", value); };
    for (const outcome& o : outcomes) {
        table.add_row({o.seen.scheme, size_of(o), std::to_string(o.what.depth), std::to_string(o.seen.calls),
                       short_text(percentile_us(o, 50)), short_text(percentile_us(o, 90)),
                       short_text(percentile_us(o, 99)), short_text(percentile_us(o, 99.9)),
                       short_text(percentile_us(o, 100)), fmt::format("{:.0f}", rate(o)),
                       fmt::format("{:.3f}", gbytes_per_second(o)), short_text(client_cpu(o) + server_cpu(o))});
    }
    return table.text();
}

nlohmann::json mix_json(const size_mix& mix) {
    nlohmann::json all = nlohmann::json::array();
    for (const size_mix::part& each : mix.parts()) all.push_back({{"size_bytes", each.bytes}, {"weight", each.weight}});
    return all;
}

void add_open_loop(nlohmann::json& entry, const outcome& o) {
    entry["wanted_rate_per_s"] = o.what.rate;
    entry["arrivals"] = arrivals_name(o.what.arriving);
    entry["unsent"] = o.seen.unsent;
    entry["delay_p50_us"] = microseconds(o.seen.delay.value_at(50));
    entry["delay_p99_us"] = microseconds(o.seen.delay.value_at(99));
    entry["delay_max_us"] = microseconds(o.seen.delay.max());
}

nlohmann::json json_of(const outcome& o, const settings& chosen) {
    nlohmann::json entry{{"scheme", o.seen.scheme},
                         {"size_bytes", o.what.request_bytes},
                         {"response_bytes", o.what.response_bytes},
                         {"depth", o.what.depth},
                         {"clients", o.what.clients},
                         {"loop", o.what.rate > 0 ? "open" : "closed"},
                         {"count", o.seen.calls},
                         {"poll", poll_name(chosen.poll)},
                         {"checked", o.what.check},
                         {"min_us", microseconds(o.seen.latency.min())},
                         {"mean_us", o.seen.latency.mean_ns() / 1e3},
                         {"p50_us", percentile_us(o, 50)},
                         {"p90_us", percentile_us(o, 90)},
                         {"p99_us", percentile_us(o, 99)},
                         {"p99_9_us", percentile_us(o, 99.9)},
                         {"p99_99_us", percentile_us(o, 99.99)},
                         {"max_us", percentile_us(o, 100)},
                         {"seconds", seconds(o)},
                         {"rate_per_s", rate(o)},
                         {"gbytes_per_s", gbytes_per_second(o)},
                         {"cpu_us_per_op", client_cpu(o) + server_cpu(o)}};
    if (!o.what.mix.empty()) entry["sizes"] = mix_json(o.what.mix);
    if (o.what.duration) entry["duration_s"] = std::chrono::duration<double>(*o.what.duration).count();
    if (o.what.rate > 0) add_open_loop(entry, o);
    if (o.seen.server_cpu) {
        entry["client_cpu_us_per_op"] = client_cpu(o);
        entry["server_cpu_us_per_op"] = server_cpu(o);
    }
    return entry;
}

/// What the table does not say of an open loop.
std::string open_loop_text(const outcome& o) {
    std::string out = fmt::format(
        "{} {}: {:.0f} calls/s due ({}); sent late by p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us", o.seen.scheme,
        size_of(o), o.what.rate, arrivals_name(o.what.arriving), microseconds(o.seen.delay.value_at(50)),
        microseconds(o.seen.delay.value_at(99)), microseconds(o.seen.delay.max()));
    if (o.seen.unsent > 0)
        out += fmt::format("; {} calls were due but not sent: the clients or the server are too slow for this rate",
                           o.seen.unsent);
    return out + '\n';
}

std::string notes_text(const std::vector<outcome>& outcomes) {
    std::string out = "GB/s: payload of the larger direction. CPU: both ends, per call.\n";
    const auto is_half = [](const outcome& each) { return each.seen.scheme != "local" && !each.seen.server_cpu; };
    if (std::any_of(outcomes.begin(), outcomes.end(), is_half))
        out += "CPU of servers with payloads in GPU memory is missing: they cannot report it.\n";
    const load& any = outcomes.front().what;
    if (any.clients > 1) out += fmt::format("{} clients; depth: of each of them.\n", any.clients);
    if (any.rate <= 0) return out;
    out += "Latency: from the time at which a call was due.\n";
    for (const outcome& each : outcomes) out += open_loop_text(each);
    return out;
}

}  // namespace

bool present(const std::vector<outcome>& outcomes, const settings& chosen) {
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(people, "{}", table_text(outcomes));
    fmt::print(people, "{}", notes_text(outcomes));
    if (!report::written(people)) return false;
    if (!chosen.histogram.empty() && !write_histograms(chosen.histogram, outcomes)) return false;
    if (chosen.json.empty()) return true;
    nlohmann::json results = nlohmann::json::array();
    for (const outcome& o : outcomes) results.push_back(json_of(o, chosen));
    return report::write_json(chosen.json, {{"results", results}});
}

}  // namespace accel::perf
