// SPDX-License-Identifier: Apache-2.0
/// What it costs clients of gRPC to reach a model through the gateway, beside a proxy with gRPC's own API and nginx:
/// in one run, in turn.
#include "load.hpp"
#include "report/durations.hpp"
#include "report/percentiles.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"
#include "ways.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel::bench;
namespace report = accel::report;
constexpr const char* program = "door_bench";

struct settings {
    door_choices doors;
    std::vector<std::string> sizes{"64", "256KiB", "602112"};
    std::vector<std::size_t> connections{1, 16};
    std::size_t rounds = 20;
    std::chrono::milliseconds slot{200};
    bool strict = false;
    std::string json;
};

/// Of one way: what each round has seen.
struct outcome {
    door_way way;
    std::vector<double> medians_us{};
    std::vector<double> cpu_us{};      ///< of the hop, a request
    std::vector<double> per_second{};  ///< requests
    std::size_t requests = 0;

    [[nodiscard]] double p50_us() const { return report::median(medians_us); }
    [[nodiscard]] double per_core() const {
        const double cpu = report::median(cpu_us);
        return cpu > 0 ? 1e6 / cpu : 0;
    }
};

accel::result<void> one_slot(outcome& to, door_load& load, std::chrono::milliseconds how_long) {
    const auto cpu = to.way.hop == 0 ? std::chrono::nanoseconds{} : cpu_time_of(to.way.hop);
    const auto began = std::chrono::steady_clock::now();
    auto times = load.run(how_long);
    const double took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (!times) return accel::error{times.error().code, 0, to.way.name + ": " + times.error().message};
    const auto count = static_cast<double>(times->size());
    to.requests += times->size();
    to.per_second.push_back(count / took_s);
    to.medians_us.push_back(report::median(std::move(*times)));
    if (to.way.hop != 0) to.cpu_us.push_back(report::microseconds(cpu_time_of(to.way.hop) - cpu) / count);
    return {};
}

/// All ways in turn, forwards and backwards alternately, so that what else the machine does meets them alike.
accel::result<std::vector<outcome>> measure(const door_ways& over, std::size_t connections, std::size_t size_bytes,
                                            const settings& chosen) {
    std::vector<outcome> out;
    std::vector<door_load> loads;
    for (const door_way& each : over.ways()) {
        auto load = door_load::open(each.address, connections, size_bytes);
        if (!load) return accel::error{load.error().code, 0, each.name + ", " + load.error().message};
        out.push_back({.way = each});
        loads.push_back(std::move(*load));
    }
    for (std::size_t round = 0; round <= chosen.rounds; ++round) {
        for (std::size_t i = 0; i < out.size(); ++i) {
            const std::size_t at = round % 2 == 0 ? i : out.size() - 1 - i;
            if (auto done = one_slot(out[at], loads[at], chosen.slot); !done) return done.error();
        }
        if (round > 0) continue;
        for (outcome& each : out) each = {.way = each.way};  // has warmed up
    }
    return out;
}

/// How ours stands beside the best of the others; below 1 is better.
struct standing {
    double p50 = 0;
    double cpu = 0;
};

standing standing_of(const std::vector<outcome>& seen) {
    double p50 = 0;
    double per_core = 0;
    standing best;
    for (const outcome& each : seen) {
        if (each.way.hop == 0) continue;
        if (each.way.name == ours_name) {
            p50 = each.p50_us();
            per_core = each.per_core();
        } else {
            best.p50 = best.p50 == 0 ? each.p50_us() : std::min(best.p50, each.p50_us());
            best.cpu = std::max(best.cpu, each.per_core());
        }
    }
    return {p50 / best.p50, best.cpu / per_core};
}

/// The rows of the table and of the JSON, filled as the run goes.
class report_sheet {
  public:
    void add(std::size_t size_bytes, std::size_t connections, const std::vector<outcome>& seen) {
        const standing ours = standing_of(seen);
        missed_ = missed_ || ours.p50 > 1 || ours.cpu > 1;
        nlohmann::json entry{{"size_bytes", size_bytes},
                             {"connections", connections},
                             {"p50_ratio", ours.p50},
                             {"cpu_ratio", ours.cpu},
                             {"ways", nlohmann::json::array()}};
        for (const outcome& each : seen) add_row(size_bytes, connections, each, ours, entry);
        json_["results"].push_back(std::move(entry));
    }
    [[nodiscard]] std::string text() const { return table_.text(); }
    [[nodiscard]] const nlohmann::json& json() const noexcept { return json_; }
    [[nodiscard]] bool missed() const noexcept { return missed_; }

  private:
    void add_row(std::size_t size_bytes, std::size_t connections, const outcome& each, const standing& ours,
                 nlohmann::json& entry) {
        std::vector<std::string> cells{report::size_text(size_bytes),
                                       std::to_string(connections),
                                       each.way.name,
                                       each.way.behind,
                                       fmt::format("{:.0f}", each.p50_us()),
                                       fmt::format("{:.0f}", report::median(each.per_second))};
        nlohmann::json row{{"way", each.way.name},      {"behind", each.way.behind},
                           {"p50_us", each.p50_us()},   {"rounds_us", each.medians_us},
                           {"requests", each.requests}, {"requests_per_s", report::median(each.per_second)}};
        if (each.way.hop != 0) {
            cells.push_back(fmt::format("{:.1f}", report::median(each.cpu_us)));
            cells.push_back(fmt::format("{:.0f}", each.per_core()));
            row["cpu_us"] = report::median(each.cpu_us);
            row["rounds_cpu_us"] = each.cpu_us;
            row["requests_per_s_and_core"] = each.per_core();
        }
        if (each.way.name == ours_name) cells.push_back(fmt::format("{:.2f}, {:.2f}", ours.p50, ours.cpu));
        table_.add_row(std::move(cells));
        entry["ways"].push_back(std::move(row));
    }

    using align = report::table::align;
    report::table table_{{{"size"},
                          {"connections"},
                          {"way", align::left},
                          {"behind it", align::left},
                          {"p50 us"},
                          {"requests/s"},
                          {"hop's CPU us"},
                          {"requests/s/core"},
                          {"to the best other: p50, CPU", align::left}}};
    nlohmann::json json_{{"results", nlohmann::json::array()}};
    bool missed_ = false;
};

int run(const settings& chosen) {
    report_sheet sheet;
    std::string absent;
    for (const std::string& each : chosen.sizes) {
        const std::size_t size_bytes = *accel::parse_size(each);
        auto over = door_ways::open(chosen.doors, size_bytes);
        if (!over) return report::complain(program, over.error());
        absent = over->absent();
        for (const std::size_t connections : chosen.connections) {
            const auto seen = measure(*over, connections, size_bytes, chosen);
            if (!seen) return report::complain(program, seen.error());
            sheet.add(size_bytes, connections, seen.value());
        }
    }
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(people,
               "{}\nMedians of {} rounds of {} ms, all ways in turn. Each connection has one request at a time; each "
               "answer is its request. CPU: of the process in between, for a request.\n{}",
               sheet.text(), chosen.rounds, chosen.slot.count(), absent.empty() ? "" : absent + "\n");
    if (!chosen.json.empty() && !report::write_json(chosen.json, sheet.json())) return 1;
    return chosen.strict && sheet.missed() ? 1 : 0;
}

std::string check_size(const std::string& text) {
    const auto read = accel::parse_size(text);
    const std::size_t size = read ? read.value() : 0;
    return size > 0 && size % sizeof(float) == 0 && size <= (3U << 20)
               ? std::string{}
               : "'" + text + "' is not a valid size: write 64 or 256KiB, a multiple of 4 up to 3MiB";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 2 && std::string_view{argv[1]} == "serve") return serve_door_peer({argv + 2, argv + argc});
    settings chosen;
    chosen.doors.gateway = report::program_path("gateway");
    chosen.doors.nginx = "/usr/sbin/nginx";
    CLI::App app{"What the gateway's door for gRPC costs, beside a proxy with gRPC's own API and nginx grpc_pass."};
    app.footer("Examples:\n  door_bench --rounds 5\n  door_bench --size 4KiB --connections 4 --json doors.json");
    app.set_version_flag("--version", fmt::format("{} {}", program, report::version_text()));
    app.add_option("--size", chosen.sizes, "Bytes of a request's tensor and its answer's (default 64, 256KiB, 602112)")
        ->delimiter(',')
        ->check(CLI::Validator(check_size, "SIZE"));
    app.add_option("--connections", chosen.connections, "So many clients at once (default 1, 16)")
        ->delimiter(',')
        ->check(CLI::Range(1, 1000));
    app.add_option("--rounds", chosen.rounds, "So many rounds (default 20)")->check(CLI::Range(1, 100'000));
    app.add_option_function<std::string>(
           "--slot",
           [&](const std::string& text) {
               chosen.slot = std::chrono::duration_cast<std::chrono::milliseconds>(*report::parse_duration(text));
           },
           "The time of each way in a round (default 200ms)")
        ->check(CLI::Validator(report::check_duration, "DURATION"));
    app.add_option("--nginx", chosen.doors.nginx, "Where nginx is")->type_name("PATH");
    app.add_flag("--strict", chosen.strict, "Exit status 1 where ours is not the first");
    app.add_option("--json", chosen.json, "Write the results to FILE (-: standard output)")->type_name("FILE");
    CLI11_PARSE(app, argc, argv);
    return run(chosen);
}
