// SPDX-License-Identifier: Apache-2.0
/// Sends requests to a model behind any transport, checks the answers, and says where the time went.
#include "report/durations.hpp"
#include "report/program.hpp"
#include "serving/load/in_process.hpp"
#include "serving/load/inputs.hpp"
#include "serving/load/loadgen.hpp"
#include "serving/load/output.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/shapes_file.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel::examples::serving;
namespace report = accel::report;
constexpr const char* program = "load";
/// Calls of each client in flight where no answer is waited for before the next call.
constexpr std::uint32_t usual_depth = 8;

constexpr const char* examples =
    "Examples:\n"
    "  load 'tcp://127.0.0.1:5555?insecure=true' --model digits --clients 4\n"
    "  load 'tcp://server:5555?key_file=client.key&server_key=server.pub' --model resnet50 --raw --json -\n"
    "  load 'rdma://server:5555?key_file=client.key&server_key=server.pub' --model resnet50 --rate 200 --slo 20ms\n"
    "  load local://here --model resnet50 --in-process resnet50 --clients 4\n"
    "  load 'tcp://127.0.0.1:5555?insecure=true' --shapes mine.json --clients 4\n"
    "  load 'tcp://127.0.0.1:5555?insecure=true' --model digits --find-peak 5ms --requests 500\n"
    "  load 'tcp://127.0.0.1:5555?insecure=true' --model digits --rate 500 --slo 5ms --mlperf-log logs";

struct load_command {
    load_settings load;
    std::string model, shapes, expect = "auto", json, csv;
    bool offline = false;
    std::optional<std::chrono::nanoseconds> peak_slo;
    bool depth_given = false;
    std::string mlperf_log, generator;  ///< the folder, or empty; loadgen, own, or empty: as the build has it
    settings here;                      ///< of a server in this process; without models: none
};

/// Of a file, or of the table. A sentence about what is wrong, or nothing.
std::string find_chosen_model(load_command& chosen) {
    if (!chosen.shapes.empty()) {
        auto added = add_shapes_file(chosen.shapes);
        if (!added) return added.error().message;
        if (chosen.model.empty()) chosen.model = std::move(added).value();
    }
    if (chosen.model.empty()) return "no model is given: give --model NAME, or describe one with --shapes FILE";
    chosen.load.model = find_model(chosen.model);
    if (chosen.load.model != nullptr) return {};
    std::string known;
    for (const model_shapes& each : known_models()) known += (known.empty() ? "" : ", ") + each.name;
    return "there is no model '" + chosen.model + "': choose from " + known + ", or describe yours with --shapes FILE";
}

void add_time(CLI::App& app, const char* name, std::optional<std::chrono::nanoseconds>& into, const char* what) {
    app.add_option_function<std::string>(
           name, [&into](const std::string& text) { into = *report::parse_duration(text); }, what)
        ->check(CLI::Validator(report::check_duration, "TIME"));
}

void add_what(CLI::App& app, load_command& chosen) {
    app.add_option("URI", chosen.load.uris, "The server's URIs; clients are spread over them")->required();
    app.add_option("--model", chosen.model, "The model to call (default: that of --shapes)")->type_name("NAME");
    app.add_option("--shapes", chosen.shapes, "Describes a model that the table does not have (JSON)")
        ->type_name("FILE");
    auto* const raw = app.add_flag("--raw", chosen.load.raw, "Send raw images, which the server preprocesses");
    auto* const here = app.add_option_function<std::int16_t>(
        "--preprocess-on",
        [&](std::int16_t gpu) {
            if (!chosen.load.preprocess) chosen.load.preprocess.emplace();
            chosen.load.preprocess->gpu = gpu;
        },
        "Be the first of two stages: preprocess a raw image on this GPU before each call, and send the tensors");
    here->check(CLI::Range(0, 255))->excludes(raw);
    app.add_flag_callback(
           "--from-host",
           [&] {
               if (!chosen.load.preprocess) chosen.load.preprocess.emplace();
               chosen.load.preprocess->from_host = true;
           },
           "Copy those tensors to the host first and send them from there")
        ->needs(here);
    app.add_option("--expect", chosen.expect,
                   "How to check answers: synthetic, digits, shape (types and shapes only), auto")
        ->check(CLI::IsMember({"auto", "synthetic", "digits", "shape"}));
    app.add_option("--seed", chosen.load.seed, "Seed of requests and arrivals (default 1)");
}

void add_closed_loop(CLI::App& app, load_command& chosen) {
    app.add_option("--clients", chosen.load.clients, "Channels, each with its own thread (default 1)")
        ->check(CLI::Range(1, 1024));
    app.add_option("--requests", chosen.load.requests, "Most calls of each client (default 1000)")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}));
    add_time(app, "--duration", chosen.load.duration, "Longest time to send calls");
    app.add_option("--at-least", chosen.load.at_least,
                   "Fewest calls of each client, even beyond --duration (default 0)")
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000'000}));
    app.add_option("--warm-up", chosen.load.warm_up, "Calls of each client before the measurement (default 10)");
    app.add_option_function<std::string>(
           "--settle", [&](const std::string& text) { chosen.load.settle = *report::parse_duration(text); },
           "Repeat the warm-up for up to this time, until two of them take the same time (within 5 %)")
        ->check(CLI::Validator(report::check_duration, "TIME"));
    app.add_option("--priority-clients", chosen.load.priority_clients,
                   "Number of clients with high priority; reported separately");
    app.add_option_function<std::string>(
           "--timeout", [&](const std::string& text) { chosen.load.timeout = *report::parse_duration(text); },
           "Time limit of a call (default 30s)")
        ->check(CLI::Validator(report::check_duration, "TIME"));
}

void add_open_loop(CLI::App& app, load_command& chosen) {
    auto* const rate =
        app.add_option("--rate", chosen.load.rate,
                       "Open loop: calls due per second, of all clients together, as a Poisson process. Latency "
                       "counts\nfrom the due time")
            ->check(CLI::Range(0.001, 1e7));
    auto* const offline = app.add_flag("--offline", chosen.offline, "Send all calls at once: --depth of each client");
    app.add_option_function<std::string>(
           "--find-peak", [&](const std::string& text) { chosen.peak_slo = *report::parse_duration(text); },
           "Find the highest rate at which 99 % are answered within this time")
        ->check(CLI::Validator(report::check_duration, "TIME"))
        ->excludes(rate)
        ->excludes(offline);
    offline->excludes(rate);
    app.add_option_function<std::uint32_t>(
           "--depth",
           [&](std::uint32_t depth) {
               chosen.load.depth = depth;
               chosen.depth_given = true;
           },
           "Calls in flight of each client (default 1; 8 with --rate, --offline, --find-peak)")
        ->check(CLI::Range(1, 1024));
    app.add_option_function<std::string>(
           "--slo", [&](const std::string& text) { chosen.load.slo = *report::parse_duration(text); },
           "Count the answers within this time (goodput)")
        ->check(CLI::Validator(report::check_duration, "TIME"));
}

void add_mlperf(CLI::App& app, load_command& chosen) {
    auto* const log =
        app.add_option("--mlperf-log", chosen.mlperf_log,
                       "With --rate, --offline or --find-peak: write MLPerf's logs into FOLDER. --requests\nand "
                       "--duration are then minimums, and LoadGen issues the calls, if this build\nhas it")
            ->type_name("FOLDER");
    app.add_option("--generator", chosen.generator,
                   fmt::format("Which generator issues the calls: loadgen or own (default {})",
                               has_loadgen() ? "loadgen" : "own"))
        ->check(CLI::IsMember({"loadgen", "own"}))
        ->needs(log);
}

void add_in_process(CLI::App& app, load_command& chosen) {
    auto* const here = app.add_option("--in-process", chosen.here.models,
                                      "Serve NAME[=SPEC] at the URIs in this process too, like model_server");
    app.add_option_function<std::string>(
           "--on",
           [&](const std::string& place) { chosen.here.on = place == "gpu" ? execution::gpu : execution::host; },
           "Where a server in this process computes (default host)")
        ->check(CLI::IsMember({"host", "gpu"}))
        ->needs(here);
    app.add_option_function<std::string>(
           "--streams", [&](const std::string& text) { chosen.here.streams = *parse_streams(text); },
           "As for model_server")
        ->check(CLI::Validator(
            [](const std::string& text) {
                return parse_streams(text) ? ""
                                           : "'" + text +
                                                 "' is not a valid number of "
                                                 "streams";
            },
            "N|client"))
        ->needs(here);
    app.add_option("--synthetic-gflops", chosen.here.synthetic.gflops_per_second, "As for model_server (default 2000)")
        ->check(CLI::Range(0.001, 1e9))
        ->needs(here);
}

void add_output(CLI::App& app, load_command& chosen) {
    app.add_option("--json", chosen.json, "Write the result to FILE (-: standard output)")->type_name("FILE");
    app.add_option("--csv", chosen.csv, "Write the stages to FILE, as CSV")->type_name("FILE");
    app.add_option("--gpu", chosen.load.gpu, "Which GPU NVML watches (default 0; -1: none)")->check(CLI::Range(-1, 64));
}

/// What no option says alone. A sentence about what is wrong, or nothing.
std::string settle(load_command& chosen) {
    load_settings& load = chosen.load;
    if (auto wrong = find_chosen_model(chosen); !wrong.empty()) return wrong;
    load.expect = expectation_of(chosen.expect, chosen.model);
    const bool waits = load.rate <= 0 && !chosen.offline && !chosen.peak_slo;
    if (!chosen.depth_given && !waits) load.depth = usual_depth;
    if (chosen.peak_slo) load.slo = *chosen.peak_slo;
    if (load.raw && image_bytes(load.model->image) == 0)
        return "--raw: '" + chosen.model + "' does not take raw images";
    if (load.preprocess && load.depth != 1) return "--preprocess-on has one call in flight: give --depth 1";
    if (load.at_least > load.requests) return "--at-least is more than --requests";
    if (load.at_least > 0 && load.rate > 0) return "--at-least excludes an open loop, which ends when its time is over";
    if (waits && !chosen.mlperf_log.empty()) return "--mlperf-log needs --rate, --offline or --find-peak";
    if (chosen.generator == "loadgen" && !has_loadgen()) return "--generator loadgen: this build has no LoadGen";
    if (chosen.generator.empty()) chosen.generator = has_loadgen() ? "loadgen" : "own";
    if (!chosen.mlperf_log.empty()) {
        if (load.slo.count() == 0) load.slo = load.timeout;
        load.least_time = load.duration.value_or(std::chrono::nanoseconds{});
        load.duration.reset();
    }
    if (load.priority_clients > load.clients) return "--priority-clients: there are fewer --clients";
    if (load.expect == expectation::digits && chosen.model != "digits")
        return "--expect digits: the model is not "
               "digits";
    return {};
}

/// Exit status, or nothing: go on.
std::optional<int> parse_load(int argc, char** argv, load_command& chosen) {
    CLI::App app{"Sends requests to a model server, or to a gateway before it, and checks the answers."};
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("{} {}", program, report::version_text()));
    app.failure_message(
        [](const CLI::App*, const CLI::Error& e) { return fmt::format("{}: {}\n", program, e.what()); });
    add_what(app, chosen);
    add_closed_loop(app, chosen);
    add_open_loop(app, chosen);
    add_mlperf(app, chosen);
    add_in_process(app, chosen);
    add_output(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e);
    }
    if (const std::string wrong = settle(chosen); !wrong.empty()) return report::complain(program, wrong);
    return std::nullopt;
}

bool write_text(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    file.close();
    if (!file) (void)report::complain(program, "cannot write " + path);
    return static_cast<bool>(file);
}

/// Exit status.
int present(const load_settings& load, const load_outcome& outcome, const load_command& chosen,
            const nlohmann::json& document) {
    bool written = true;
    if (!chosen.csv.empty()) written = write_text(chosen.csv, load_csv(load, outcome));
    if (!chosen.json.empty()) written = report::write_json(chosen.json, document) && written;
    if (chosen.json != "-") fmt::print("{}", load_table(load, outcome));
    written = report::written(stdout) && written;
    const measured all = outcome.all();
    if (all.wrong > 0) return report::complain(program, fmt::format("{} answers were wrong", all.wrong));
    if (all.failed() > 0) {
        return report::complain(program, fmt::format("{} calls were not answered; the first failed because: {}",
                                                     all.failed(), all.first_error));
    }
    return written ? 0 : 1;
}

/// Null: no server in this process is wanted. Clients then go to where it listens.
accel::result<std::unique_ptr<in_process_server>> serve_here(accel::context& ctx, load_command& chosen) {
    if (chosen.here.models.empty()) return std::unique_ptr<in_process_server>{};
    chosen.here.uris = chosen.load.uris;
    chosen.here.gpu = static_cast<std::int16_t>(std::max(chosen.load.gpu, 0));
    auto server = in_process_server::start(ctx, chosen.here);
    if (!server) return server.error();
    const auto endpoints = server.value()->endpoints();
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
        std::string& uri = chosen.load.uris[i];
        const std::size_t options = uri.find('?');
        uri = endpoints[i] + (options == std::string::npos ? "" : uri.substr(options));
    }
    return server;
}

mlperf_run mlperf_run_of(const load_command& chosen) {
    mlperf_run out{chosen.mlperf_log, scenario::server, chosen.load.requests * chosen.load.clients,
                   chosen.load.least_time, chosen.load.rate};
    if (chosen.offline) out.scenario = scenario::offline;
    if (chosen.peak_slo) out.scenario = scenario::peak;
    return out;
}

/// Whoever has issued the calls has written the log.
int present_mlperf(const mlperf_run& made, const load_settings& load, const load_outcome& outcome,
                   const load_command& chosen, nlohmann::json document) {
    const std::string verdict = mlperf_value(made.folder, "Result is").value_or("missing");
    document["mlperf_result"] = verdict;
    document["generator"] = chosen.generator;
    std::string peak;
    if (made.scenario == scenario::peak) peak = mlperf_value(made.folder, "target_qps").value_or("");
    if (!peak.empty()) document["peak_rate"] = std::strtod(peak.c_str(), nullptr);
    if (chosen.json != "-")
        fmt::print("MLPerf ({}): {}{}; {}/mlperf_log_summary.txt\n", chosen.generator, verdict,
                   peak.empty() ? "" : ", peak at " + peak + " calls/s", made.folder);
    return present(load, outcome, chosen, document);
}

/// LoadGen begins to look where the latency is surely kept: at a part of what the server does at most.
accel::result<double> low_rate(accel::context& ctx, load_settings load) {
    constexpr double part = 1.0 / 16;
    load.rate = 0;
    load.least_time = {};
    auto flood = run_load(ctx, load);
    if (!flood) return flood.error();
    return part * static_cast<double>(flood->all().answered) / std::chrono::duration<double>(flood->wall).count();
}

int let_loadgen_issue(accel::context& ctx, const load_command& chosen) {
    mlperf_run made = mlperf_run_of(chosen);
    if (made.scenario == scenario::peak) {
        auto low = low_rate(ctx, chosen.load);
        if (!low) return report::complain(program, low.error());
        made.rate = *low;
    }
    auto outcome = run_loadgen(ctx, chosen.load, made);
    if (!outcome) return report::complain(program, outcome.error());
    load_settings load = chosen.load;
    load.rate = made.rate;
    return present_mlperf(made, load, *outcome, chosen, load_json(load, *outcome));
}

/// Writes the log of a run of load's own generator, where one is wanted.
int present_own(const load_settings& load, const load_outcome& outcome, const load_command& chosen,
                const nlohmann::json& document) {
    if (chosen.mlperf_log.empty()) return present(load, outcome, chosen, document);
    mlperf_run made = mlperf_run_of(chosen);
    made.rate = load.rate;
    if (auto written = write_mlperf_summary(made, load, outcome); !written)
        return report::complain(program, written.error());
    return present_mlperf(made, load, outcome, chosen, document);
}

int look_for_peak(const load_command& chosen, const load_runner& run) {
    auto found = find_peak(chosen.load, run);
    if (!found) return report::complain(program, found.error());
    if (!found->at) return report::complain(program, "no tested rate kept the SLO");
    load_settings at = chosen.load;
    at.rate = found->rate;
    auto document = load_json(at, *found->at);
    document["peak_rate"] = found->rate;
    document["trials"] = found->trials;
    if (chosen.json != "-") fmt::print("99 % keep the SLO at {:.1f} calls/s; there:\n", found->rate);
    return present_own(at, *found->at, chosen, document);
}

}  // namespace

int main(int argc, char** argv) {
    load_command chosen;
    if (const auto ended = parse_load(argc, argv, chosen)) return *ended;
    use_all_gpu_queues();
    auto ctx = accel::context::open();
    if (!ctx) return report::complain(program, ctx.error());
    const auto server = serve_here(*ctx, chosen);
    if (!server) return report::complain(program, server.error());
    if (!chosen.mlperf_log.empty() && chosen.generator == "loadgen") return let_loadgen_issue(*ctx, chosen);
    const load_runner run = [&](const load_settings& load) { return run_load(*ctx, load); };
    if (chosen.peak_slo) return look_for_peak(chosen, run);
    auto outcome = run(chosen.load);
    if (!outcome) return report::complain(program, outcome.error());
    return present_own(chosen.load, *outcome, chosen, load_json(chosen.load, *outcome));
}
