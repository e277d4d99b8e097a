// SPDX-License-Identifier: Apache-2.0
#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/gateway/settings.hpp"

#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace accel::examples::gateway {
namespace {

constexpr const char* about = "Passes requests on, from any transports to any others, until SIGINT or SIGTERM.";
constexpr const char* examples =
    "Examples:\n"
    "  gateway --listen 'tcp://0.0.0.0:5555?insecure=true' --to 'digits=rdma://node1:5555?insecure=true'\n"
    "  gateway --listen shm://models --to resnet50=rdma://node1:5555 --to resnet50=rdma://node2:5555 \\\n"
    "    --balance least-loaded --metrics 127.0.0.1:9100\n"
    "  gateway --listen 'tcp://*:5555?insecure=true' --to 'tcp://node1:5555?insecure=true&request_bytes=8M'\n"
    "Options of the servers' side go into --listen, those of the channels' side into --to.";

std::string check_a_duration(const std::string& text) {
    return report::parse_duration(text) ? std::string{} : "'" + text + "' is no duration: write 50us, 2ms or 1s";
}

std::string check_destination(const std::string& text) {
    return parse_destination(text) ? std::string{} : "'" + text + "' is neither URI nor MODEL=URI";
}

void add_duration(CLI::App& app, const char* name, std::chrono::nanoseconds& to, const char* text) {
    app.add_option_function<std::string>(
           name, [&to](const std::string& said) { to = *report::parse_duration(said); }, text)
        ->check(CLI::Validator(check_a_duration, "DURATION"));
}

void add_ends(CLI::App& app, settings& out) {
    app.add_option("--listen", out.listen, "Where clients connect, one URI or several")->required();
    app.add_option_function<std::vector<std::string>>(
           "--to",
           [&out](const std::vector<std::string>& all) {
               for (const std::string& each : all) out.to.push_back(*parse_destination(each));
           },
           "[MODEL=]URI: a server, and the model for which it is asked; without one, for requests without a target")
        ->required()
        ->check(CLI::Validator(check_destination, "[MODEL=]URI"));
}

void add_choices(CLI::App& app, settings& out) {
    static const std::map<std::string, balance> balances{
        {"round-robin", balance::round_robin}, {"least-loaded", balance::least_loaded}, {"sticky", balance::sticky}};
    app.add_option_function<std::string>(
           "--balance", [&out](const std::string& name) { out.balance = balances.at(name); },
           "Among the servers of a model: round-robin (default), least-loaded or sticky")
        ->check(CLI::IsMember({"round-robin", "least-loaded", "sticky"}));
    app.add_option_function<std::string>(
           "--key",
           [&out](const std::string& name) { out.key = name == "trace" ? sticky_key::trace : sticky_key::session; },
           "What sticky goes by: session (the client's connection, default) or trace (the request's trace id)")
        ->check(CLI::IsMember({"session", "trace"}));
}

void add_limits(CLI::App& app, settings& out) {
    app.add_option("--channels", out.channels, "To each server (default 2)")->check(CLI::Range(1, 64));
    app.add_option("--slots", out.slots, "Calls in flight on each channel (default 32)")->check(CLI::Range(1, 4096));
    app.add_option("--queue", out.queue, "Requests that wait for a free slot, at most (default 256)")
        ->check(CLI::Range(0, 65'536));
    add_duration(app, "--spin", out.spin, "How long it looks for work before it sleeps (default 50us)");
    add_duration(app, "--patience", out.patience,
                 "How long the first server may take to answer at the start (default 5s)");
    add_duration(app, "--hold", out.hold,
                 "How long a server may keep lent memory after a deadline, or be silent (default 2s)");
}

}  // namespace

std::optional<int> read_command_line(int argc, char** argv, settings& out) {
    CLI::App app{about};
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("gateway {}", report::version_text()));
    add_ends(app, out);
    add_choices(app, out);
    add_limits(app, out);
    app.add_option("--metrics", out.metrics, "Answer scrapes of /metrics and /healthz there (docs/metrics.md)")
        ->check(CLI::Validator(report::check_metrics_option, "HOST:PORT"));
    app.add_flag("--json", out.json, "One line of JSON when ready, one at the end");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& failure) {
        return app.exit(failure);
    }
    return std::nullopt;
}

}  // namespace accel::examples::gateway
