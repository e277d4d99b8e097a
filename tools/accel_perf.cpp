// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace {

using accel::perf::settings;

constexpr const char* examples =
    "Examples:\n"
    "  accel_perf loop tcp --size 64,4K,1M\n"
    "  accel_perf loop local tcp zmq --size 64 --depth 8 --check\n"
    "  accel_perf serve 'tcp://0.0.0.0:5555?key_file=server.key&authorized_keys=clients.pub'\n"
    "  accel_perf client 'tcp://server:5555?key_file=client.key&server_key=server.pub' --size 64K --json "
    "out.json";

std::string check_size(const std::string& text) {
    return accel::report::parse_size(text) ? std::string{} : "'" + text + "' is no size: write 4096, 64K or 1M";
}

std::string check_sizes(const std::string& text) {
    return accel::report::parse_sizes(text) ? std::string{} : "'" + text + "' is no list of sizes: write 64,4K,1M";
}

void add_poll(CLI::App& app, settings& chosen) {
    app.add_option("--poll", chosen.poll, "How both ends wait: busy, adaptive or block")
        ->transform(CLI::CheckedTransformer(
            std::vector<std::pair<std::string, accel::poll_mode>>{{"busy", accel::poll_mode::busy},
                                                                  {"adaptive", accel::poll_mode::adaptive},
                                                                  {"block", accel::poll_mode::block}}));
}

void add_workers(CLI::App& app, settings& chosen) {
    app.add_option("--workers", chosen.workers, "Threads of the server")->check(CLI::Range(1, 256));
}

void add_load(CLI::App& app, settings& chosen) {
    app.add_option_function<std::string>(
           "--size", [&](const std::string& text) { chosen.sizes = *accel::report::parse_sizes(text); },
           "Bytes of a request, one size or several: 64,4K,1M (default 64)")
        ->check(CLI::Validator(check_sizes, "SIZE,..."));
    app.add_option_function<std::string>(
           "--response-size", [&](const std::string& text) { chosen.response_bytes = accel::report::parse_size(text); },
           "Bytes of a response (default: as the request)")
        ->check(CLI::Validator(check_size, "SIZE"));
    app.add_option("--count", chosen.count, "Calls of each size (default 10000, at most 4 GiB)")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
    app.add_option("--warm-up", chosen.warm_up, "Calls before the measurement (default count / 10, at most 1000)");
    app.add_option("--depth", chosen.depth, "Calls in flight")->check(CLI::Range(1, 65'536));
    app.add_flag("--check", chosen.check, "Fill every payload with a pattern and verify it at the other end");
    app.add_option("--json", chosen.json, "Write the results to FILE; - is standard output")->type_name("FILE");
}

}  // namespace

int main(int argc, char** argv) {
    settings chosen;
    CLI::App app{"Measures round trips of accel_transport: latency, rate, bandwidth and CPU per call."};
    app.footer(examples);
    app.set_version_flag("--version", "accel_perf " + accel::report::version_text());
    app.require_subcommand(1);

    CLI::App& serve = *app.add_subcommand("serve", "Answer clients until SIGINT or SIGTERM");
    serve.add_option("URI", chosen.uris, "Where to listen, one or several")->required();
    serve.add_option("--metrics", chosen.metrics, "Answer scrapes of /metrics and /healthz there")
        ->check(CLI::Validator(accel::report::check_metrics_option, "HOST:PORT"));
    CLI::App& client = *app.add_subcommand("client", "Measure against an accel_perf server");
    client.add_option("URI", chosen.uris, "The server's URI")->required()->expected(1);
    CLI::App& loop = *app.add_subcommand("loop", "Start a server in a process of its own and measure against it");
    loop.add_option("URI", chosen.uris, "URIs or schemes, one after the other; without keys: insecure on loopback")
        ->required();

    for (CLI::App* each : {&serve, &client, &loop}) {
        each->footer(examples);
        add_poll(*each, chosen);
    }
    for (CLI::App* each : {&serve, &loop}) add_workers(*each, chosen);
    for (CLI::App* each : {&client, &loop}) add_load(*each, chosen);

    CLI11_PARSE(app, argc, argv);
    if (serve.parsed()) return accel::perf::serve(chosen);
    if (client.parsed()) return accel::perf::client(chosen);
    return accel::perf::loop(chosen);
}
