// SPDX-License-Identifier: Apache-2.0
/// The program behind `./run demo`: the digits service over every backend that this machine can use, one
/// table.
#include "digits/demo_plot.hpp"
#include "digits/demo_progress.hpp"
#include "digits/demo_run.hpp"
#include "digits/service_choice.hpp"
#include "report/program.hpp"

#include <accel_transport/context.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

namespace digits = accel::examples::digits;
constexpr const char* program = "digits_demo";

struct settings {
    digits::demo_plan plan;
    std::vector<std::string> only;
    std::string json;
    std::string plot;
    std::string memory = "auto";
};

std::optional<int> parse(int argc, char** argv, settings& chosen) {
    CLI::App app{
        "Serves handwritten digits to several clients over every transport usable here, and prints one "
        "table."};
    app.footer(
        "Examples:\n  digits_demo\n  digits_demo --json demo.json --plot demo.svg\n  digits_demo --only "
        "tcp,zmq");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_option("--clients", chosen.plan.clients, "Clients (default 4)")->check(CLI::Range(1, 100));
    app.add_option("--requests", chosen.plan.requests, "Requests of each client (default 250)")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--only", chosen.only, "These schemes only: tcp,zmq")->delimiter(',');
    app.add_option("--host", chosen.plan.host, "Address to serve on (default 127.0.0.1)");
    app.add_option("--json", chosen.json, "Write the table to FILE as JSON (-: standard output)")->type_name("FILE");
    app.add_option("--plot", chosen.plot, "Draw the stages into FILE (SVG)")->type_name("FILE.svg");
    app.add_option("--memory", chosen.memory,
                   "Where the server works: host, cuda:0 …, or auto (default): a GPU where one is usable")
        ->check(digits::check_memory_option);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e);
    }
    return std::nullopt;
}

/// Schemes apart by whether they can be used here.
struct choice {
    std::vector<accel::scheme_report> usable;
    std::vector<accel::scheme_report> unavailable;
};

choice choose(const std::vector<accel::scheme_report>& reports, const std::vector<std::string>& only) {
    choice chosen;
    for (const accel::scheme_report& each : reports) {
        if (!only.empty() && std::ranges::find(only, each.scheme) == only.end()) continue;
        (each.usable ? chosen.usable : chosen.unavailable).push_back(each);
    }
    return chosen;
}

std::vector<digits::demo_result> run_all(const settings& chosen, const accel::report::temporary_keys& keys,
                                         const std::vector<accel::scheme_report>& schemes) {
    digits::demo_progress show;
    const std::uint64_t all = std::uint64_t{chosen.plan.clients} * chosen.plan.requests;
    std::vector<digits::demo_result> results;
    for (const accel::scheme_report& report : schemes) {
        const std::string& scheme = report.scheme;
        digits::demo_run run{chosen.plan, keys, scheme};
        const auto both =
            run.run({[&](digits::input_form form, std::uint64_t done) {
                         show.update(fmt::format("{} {}", scheme, to_string(form)), done, all);
                     },
                     [&](const digits::demo_result& each) {
                         show.finish(fmt::format("{} {}: {} of {} requests answered, {} right", scheme, each.row.input,
                                                 each.row.requests, all, each.row.correct));
                     }});
        results.insert(results.end(), both.begin(), both.end());
    }
    return results;
}

nlohmann::json json_of(const std::vector<accel::scheme_report>& reports) {
    nlohmann::json out = nlohmann::json::array();
    for (const accel::scheme_report& each : reports) out.push_back({{"scheme", each.scheme}, {"reason", each.reason}});
    return out;
}

nlohmann::json json_of(const std::vector<digits::digits_row>& rows, const choice& schemes,
                       const digits::service_place& place) {
    nlohmann::json results = nlohmann::json::array();
    for (const digits::digits_row& row : rows) results.push_back(digits::to_json(row));
    return {{"results", results},
            {"memory", digits::to_text(place.memory)},
            {"memory_reason", place.reason},
            {"served", json_of(schemes.usable)},
            {"unavailable", json_of(schemes.unavailable)}};
}

void print(const settings& chosen, const std::vector<digits::digits_row>& rows, const choice& schemes,
           const digits::service_place& place) {
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(people, "\n{}", digits::table_text(rows));
    fmt::print(people,
               "Times in microseconds; stages are medians. raw: a 640x480 RGB frame, which the server preprocesses; "
               "tensor: 64 floats.\n{} clients, each with one request in flight; server and clients in two "
               "processes "
               "(local: in one), one worker. CPU: of both ends.\n",
               chosen.plan.clients);
    fmt::print(people, "memory of the server: {} ({})\n", chosen.plan.memory, place.reason);
    for (const auto* reports : {&schemes.usable, &schemes.unavailable})
        for (const accel::scheme_report& each : *reports)
            fmt::print(people, "{}: {}{}\n", each.scheme, each.usable ? "" : "not served: ", each.reason);
}

}  // namespace

int main(int argc, char** argv) {
    settings chosen;
    if (const auto ended = parse(argc, argv, chosen)) return *ended;
    const auto keys = accel::report::temporary_keys::make();
    if (!keys) return accel::report::complain(program, keys.error());
    choice schemes;
    digits::service_place place;
    {
        auto context = accel::context::open();
        if (!context) return accel::report::complain(program, context.error());
        schemes = choose(context->schemes(), chosen.only);
        const auto chosen_place = digits::choose_place(*context, chosen.memory);
        if (!chosen_place) return accel::report::complain(program, chosen_place.error());
        place = chosen_place.value();
        chosen.plan.memory = digits::to_text(place.memory);
    }
    if (schemes.usable.empty()) return accel::report::complain(program, "no usable scheme; accel_doctor says why");

    const auto results = run_all(chosen, keys.value(), schemes.usable);
    std::vector<digits::digits_row> rows;
    rows.reserve(results.size());
    for (const digits::demo_result& each : results) rows.push_back(each.row);
    print(chosen, rows, schemes, place);
    bool good = std::ranges::all_of(results, [&](const auto& each) { return is_good(each, chosen.plan); });
    if (!good) accel::report::complain(program, "not every request was answered, or fewer than 97 % were right");
    if (!accel::report::written(stdout)) good = false;
    if (!chosen.json.empty() && !accel::report::write_json(chosen.json, json_of(rows, schemes, place))) good = false;
    if (!chosen.plot.empty() && !digits::write_plot(chosen.plot, rows)) good = false;
    return good ? 0 : 1;
}
