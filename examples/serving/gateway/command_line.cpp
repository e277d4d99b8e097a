// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/command_line.hpp"

#include "report/address.hpp"
#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/configuration/config_file.hpp"
#include "serving/gateway/door_options.hpp"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace accel::examples::gateway {
namespace {

constexpr const char* program = "gateway";
constexpr const char* about =
    "Forwards requests until SIGINT or SIGTERM: from any transports to any others (--listen, --to), or from "
    "clients\nof the Open Inference Protocol (KServe v2): tritonclient, curl, perf_analyzer (--http, --grpc, --model).";
constexpr const char* examples =
    "Examples:\n"
    "  gateway --listen 'tcp://0.0.0.0:5555?insecure=true' --to 'digits=rdma://node1:5555?insecure=true'\n"
    "  gateway --listen shm://models --to resnet50=rdma://node1:5555 --to resnet50=rdma://node2:5555 \\\n"
    "    --balance least-loaded --metrics 127.0.0.1:9100\n"
    "  gateway --listen 'tcp://*:5555?insecure=true' --to 'tcp://node1:5555?insecure=true&request_bytes=8M'\n"
    "  gateway --http 127.0.0.1:8000 --grpc 127.0.0.1:8001 --model digits='tcp://127.0.0.1:5555?insecure=true'\n"
    "  gateway --config doors.json\n"
    "Options of the servers' side go into --listen, those of the channels' side into --to and --model.";

std::string check_destination(const std::string& text) {
    return parse_destination(text) ? std::string{} : "'" + text + "' is neither URI nor MODEL=URI";
}

std::string check_key(const std::string& text) {
    reach_settings read;
    return read_sticky_key(text, read) ? std::string{}
                                       : "'" + text + "' is not a valid key: expected session, trace or metadata:NAME";
}

void add_duration(CLI::App& app, const char* name, std::chrono::nanoseconds& to, const char* text) {
    app.add_option_function<std::string>(
           name, [&to](const std::string& said) { to = *report::parse_duration(said); }, text)
        ->check(CLI::Validator(report::check_duration, "DURATION"));
}

void add_ends(CLI::App& app, settings& out) {
    app.add_option("--listen", out.listen, "Where clients connect: one URI or several");
    app.add_option_function<std::vector<std::string>>(
           "--to",
           [&out](const std::vector<std::string>& all) {
               for (const std::string& each : all) out.to.push_back(*parse_destination(each));
           },
           "[MODEL=]URI: a server, and the model that it serves; without MODEL, for requests without a target; "
           "dns+URI: each address of the host is a server")
        ->check(CLI::Validator(check_destination, "[MODEL=]URI"));
}

void add_choices(CLI::App& app, reach_settings& out) {
    app.add_option_function<std::string>(
           "--balance", [&out](const std::string& name) { out.balance = *parse_balance(name); },
           "How to choose among the servers of a model: round-robin (default), least-loaded or sticky")
        ->check(CLI::IsMember({"round-robin", "least-loaded", "sticky"}));
    app.add_option_function<std::string>(
           "--key", [&out](const std::string& text) { (void)read_sticky_key(text, out); },
           "The key of sticky: session (the client's connection, default), trace (the request's trace id; not with "
           "--model) or metadata:NAME (a value in the request's metadata; with --model also --pass-header NAME)")
        ->check(CLI::Validator(check_key, "KEY"));
}

void add_reach(CLI::App& app, reach_settings& out) {
    app.add_option("--channels", out.channels, "To each server (default 2; with --model 1)")->check(CLI::Range(1, 64));
    app.add_option("--slots", out.slots, "Calls in flight on each channel (default 32)")->check(CLI::Range(1, 4096));
    add_duration(app, "--patience", out.patience,
                 "How long the first server may take to answer at startup (default 5s)");
    add_duration(app, "--dns-refresh", out.dns_refresh,
                 "How often the names of dns+ URIs are resolved again (default 30s)");
    add_duration(app, "--hold", out.hold,
                 "How long a server may keep lent memory after a deadline, or stay silent (default 2s)");
}

void add_limits(CLI::App& app, settings& out) {
    app.add_option("--queue", out.queue, "Most requests that wait for a free slot (default 256)")
        ->check(CLI::Range(0, 65'536));
    add_duration(app, "--spin", out.spin, "How long to look for work before sleeping (default 50us)");
}

std::optional<int> parse(int argc, char** argv, door_words& from, command& to) {
    CLI::App app{about};
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("{} {}", program, report::version_text()));
    add_ends(app, to.passing);
    add_limits(app, to.passing);
    add_door_options(app, from, to.doors);
    add_choices(app, to.doors.reach);
    add_reach(app, to.doors.reach);
    app.add_option("--metrics", to.doors.metrics,
                   "Serve /metrics and /healthz for scrapes at this address (docs/metrics.md); host *: every address")
        ->check(CLI::Validator(report::check_address, "HOST:PORT"));
    app.add_flag("--json", to.doors.json, "Print one line of JSON when ready, and one at the end");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& failure) {
        return app.exit(failure);
    }
    if (app.count("--key") > 0 && to.doors.reach.balance != balance::sticky)
        return report::complain(program, "--key needs --balance sticky");
    to.passing.reach = to.doors.reach;
    if (app.count("--channels") == 0) to.passing.reach.channels = settings{}.reach.channels;
    to.passing.metrics = to.doors.metrics;
    to.passing.json = to.doors.json;
    return std::nullopt;
}

bool wants_doors(const door_words& words, const command& from) {
    return !from.doors.http.empty() || !from.doors.grpc.empty() || !words.config.empty() || !words.models.empty();
}

/// Transports: both ends are named, and no door.
std::optional<int> check_ends(const door_words& words, const command& from) {
    const settings& ends = from.passing;
    if (ends.listen.empty() && ends.to.empty())
        return report::complain(program, "there is nothing to do: give --listen and --to, or --model");
    if (wants_doors(words, from))
        return report::complain(program, "--listen and --to exclude doors: start a separate gateway for each");
    if (ends.listen.empty() || ends.to.empty())
        return report::complain(program,
                                "--listen and --to must be given "
                                "together");
    return std::nullopt;
}

/// What a file says, and once more over that what the command line says.
std::optional<int> read_doors(int argc, char** argv, door_words& words, command& to) {
    serving::doors::choices file;
    if (!words.config.empty()) {
        if (auto read = serving::doors::read_configuration_file(words.config, file); !read)
            return report::complain(program, read.error());
        words = {};
        to = command{};
        to.doors = file;
        to.doors.models.clear();
        if (const auto end = parse(argc, argv, words, to)) return end;
    }
    if (auto added = add_models(words, file, to.doors); !added) return report::complain(program, added.error());
    if (to.doors.models.empty())
        return report::complain(program, "no model is given: give --model NAME=URI, or 'models' in --config FILE");
    const auto& passed = to.doors.limits.passed_headers;
    const std::string& key = to.doors.reach.key_name;
    if (!key.empty() && std::ranges::find(passed, key) == passed.end())
        return report::complain(program, fmt::format("--key metadata:{0} needs --pass-header {0}", key));
    if (to.doors.reach.key == sticky_key::trace)
        return report::complain(program, "--key trace is not for --model: give session or metadata:NAME");
    if (to.doors.http.empty() && to.doors.grpc.empty()) to.doors.http = "127.0.0.1:8000";
    to.opens_doors = true;
    return std::nullopt;
}

}  // namespace

std::optional<int> read_command_line(int argc, char** argv, command& out) {
    door_words words;
    if (const auto end = parse(argc, argv, words, out)) return end;
    const bool ends = !out.passing.listen.empty() || !out.passing.to.empty();
    if (ends || !wants_doors(words, out)) return check_ends(words, out);
    return read_doors(argc, argv, words, out);
}

}  // namespace accel::examples::gateway
