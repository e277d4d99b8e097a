// SPDX-License-Identifier: Apache-2.0
/// The time that the gateway adds to a call, beside the same hop made with nginx and with ZeroMQ: in one run, in turn.
#include "hops.hpp"
#include "report/durations.hpp"
#include "report/percentiles.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel::bench;
using clock_type = std::chrono::steady_clock;
namespace report = accel::report;
constexpr const char* program = "gateway_bench";
/// The most that the gateway may add, against the faster of its rivals.
constexpr double max_added = 1.0;

struct settings {
    hop_choices hops;
    std::vector<std::string> sizes{"64", "602112"};
    std::size_t rounds = 60;
    std::size_t calls = 200;
    std::chrono::milliseconds longest{100};  ///< of one way in one round
    bool strict = false;
    std::string json;
};

/// Of one way, microseconds.
struct outcome {
    std::string name;
    std::string direct;
    std::vector<double> rounds;  ///< the median of each
    std::vector<double> added;   ///< in each round, to its direct way's; empty: a direct way
};

/// The median of some calls over one way; nothing where one failed.
std::optional<double> one_round(echo& client, const settings& chosen) {
    std::vector<double> times;
    times.reserve(chosen.calls);
    auto start = clock_type::now();
    const auto until = start + chosen.longest;
    while (times.size() < chosen.calls && start < until) {
        if (!client.round_trip()) return std::nullopt;
        const auto end = clock_type::now();
        times.push_back(report::microseconds(end - start));
        start = end;
    }
    return report::median(std::move(times));
}

/// All ways in turn, forwards and backwards alternately, so that what else the machine does meets them alike.
accel::result<std::vector<outcome>> measure(hops& over, const settings& chosen) {
    std::vector<outcome> out;
    for (const way& each : over.ways()) out.push_back({each.name, each.direct, {}, {}});
    for (std::size_t round = 0; round <= chosen.rounds; ++round) {
        std::map<std::string, double> seen;
        for (std::size_t i = 0; i < out.size(); ++i) {
            way& each = over.ways()[round % 2 == 0 ? i : out.size() - 1 - i];
            const auto median = one_round(*each.client, chosen);
            if (!median) return accel::error{accel::status::peer_lost, 0, each.name + ": a call failed"};
            seen[each.name] = *median;
        }
        if (round == 0) continue;  // warms up
        for (outcome& each : out) {
            each.rounds.push_back(seen[each.name]);
            if (!each.direct.empty()) each.added.push_back(seen[each.name] - seen[each.direct]);
        }
    }
    return out;
}

/// The rows of the table and of the JSON, filled as the run goes.
class report_sheet {
  public:
    /// `absent`: why a rival is missing; empty: none is.
    void add(std::size_t size_bytes, const std::vector<outcome>& seen, const std::string& absent) {
        nlohmann::json entry{{"size_bytes", size_bytes}, {"ways", nlohmann::json::array()}};
        std::vector<double> rivals;
        double gateway = 0;
        for (const outcome& each : seen) {
            if (each.added.empty()) continue;
            const double added = report::median(each.added);
            if (each.name == "tcp, gateway")
                gateway = added;
            else
                rivals.push_back(added);
        }
        const double fastest = *std::ranges::min_element(rivals);
        const double ratio = gateway / fastest;
        const bool too_much = gateway > max_added * fastest;  // also where noise makes a rival's time negative
        // Without a rival nobody knows whether the target is met.
        const char* const verdict = too_much ? "MISSED" : absent.empty() ? "ok" : "not measured";
        missed_ = missed_ || too_much || !absent.empty();
        const std::string against = absent.empty() ? fmt::format("{:.2f} ({})", ratio, verdict)
                                                   : fmt::format("{} ({:.2f} against ZeroMQ alone)", verdict, ratio);
        for (const outcome& each : seen) add_row(size_bytes, each, against, entry);
        entry["ratio"] = ratio;
        entry["target"] = max_added;
        if (!too_much && !absent.empty())
            entry["met"] = nullptr;
        else
            entry["met"] = !too_much;
        json_["results"].push_back(std::move(entry));
    }
    [[nodiscard]] std::string text() const { return table_.text(); }
    [[nodiscard]] const nlohmann::json& json() const noexcept { return json_; }
    [[nodiscard]] bool missed() const noexcept { return missed_; }

  private:
    void add_row(std::size_t size_bytes, const outcome& each, const std::string& against, nlohmann::json& entry) {
        const double p50 = report::median(each.rounds);
        std::vector<std::string> cells{each.name, report::size_text(size_bytes), fmt::format("{:.1f}", p50)};
        nlohmann::json row{{"way", each.name}, {"p50_us", p50}, {"rounds_us", each.rounds}};
        if (!each.added.empty()) {
            const double added = report::median(each.added);
            cells.push_back(fmt::format("{:.1f}", added));
            cells.push_back(fmt::format("{:.1f}-{:.1f}", std::ranges::min(each.added), std::ranges::max(each.added)));
            if (each.name == "tcp, gateway") cells.push_back(against);
            row["added_us"] = added;
            row["added_rounds_us"] = each.added;
        }
        table_.add_row(std::move(cells));
        entry["ways"].push_back(std::move(row));
    }

    using align = report::table::align;
    report::table table_{{{"way", align::left},
                          {"size"},
                          {"p50 us"},
                          {"added us"},
                          {"lowest-highest"},
                          {"against the faster rival", align::left}}};
    nlohmann::json json_{{"results", nlohmann::json::array()}};
    bool missed_ = false;
};

int run(const settings& chosen) {
    report_sheet sheet;
    std::string absent;
    for (const std::string& each : chosen.sizes) {
        const std::size_t size_bytes = *accel::parse_size(each);
        auto over = hops::open(chosen.hops, size_bytes);
        if (!over) return report::complain(program, over.error());
        absent = over->absent();
        const auto seen = measure(*over, chosen);
        if (!seen) return report::complain(program, seen.error());
        sheet.add(size_bytes, seen.value(), absent);
    }
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(
        people,
        "{}\nMedians of {} rounds, all ways in turn, each up to {} calls, one after the other. Added: to the same "
        "client and server without the hop.\n{}",
        sheet.text(), chosen.rounds, chosen.calls, absent.empty() ? "" : absent + "\n");
    if (!chosen.json.empty() && !report::write_json(chosen.json, sheet.json())) return 1;
    return chosen.strict && sheet.missed() ? 1 : 0;
}

std::string check_a_size(const std::string& text) {
    const auto read = accel::parse_size(text);
    return read && read.value() > 0 ? std::string{} : "'" + text + "' is not a valid size: write 64 or 4KiB";
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 2 && std::string_view{argv[1]} == "serve") return serve_hop({argv + 2, argv + argc});
    settings chosen;
    chosen.hops.gateway = report::program_path("gateway");
    chosen.hops.gateway_spin = "50us";
    chosen.hops.nginx = "/usr/sbin/nginx";
    chosen.hops.nginx_stream = "/usr/lib/nginx/modules/ngx_stream_module.so";
    CLI::App app{"The time that the gateway adds from tcp to tcp, beside nginx stream and a ZeroMQ proxy, in one run."};
    app.footer("Examples:\n  gateway_bench --rounds 10\n  gateway_bench --size 4KiB --json gateway.json");
    app.set_version_flag("--version", fmt::format("{} {}", program, report::version_text()));
    app.add_option("--size", chosen.sizes, "Bytes of a request and of its answer (default 64, 602112)")
        ->delimiter(',')
        ->check(CLI::Validator(check_a_size, "SIZE"));
    app.add_option("--rounds", chosen.rounds, "So many rounds")->check(CLI::Range(1, 100'000));
    app.add_option("--calls", chosen.calls, "At most so many calls over each way in a round")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--poll", chosen.hops.poll, "How this library's client and server wait (default adaptive)")
        ->check(CLI::IsMember({"adaptive", "busy", "block"}));
    app.add_option("--spin", chosen.hops.gateway_spin, "The gateway's own (default 50us)")
        ->check(CLI::Validator(report::check_duration, "DURATION"));
    app.add_option("--nginx", chosen.hops.nginx, "Where nginx is")->type_name("PATH");
    app.add_option("--nginx-stream", chosen.hops.nginx_stream, "Where its stream module is")->type_name("PATH");
    app.add_flag("--strict", chosen.strict, "Exit status 1 where the target is missed, or a rival was not measured");
    app.add_option("--json", chosen.json, "Write the results to FILE (-: standard output)")->type_name("FILE");
    CLI11_PARSE(app, argc, argv);
    return run(chosen);
}
