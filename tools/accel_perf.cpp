// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "report/address.hpp"
#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace {

using accel::perf::settings;

constexpr const char* examples =
    "Examples:\n"
    "  accel_perf loop tcp --size 64,4K,1M\n"
    "  accel_perf loop local tcp zmq --size 64 --depth 8 --check\n"
    "  accel_perf loop tcp --clients 4 --rate 20000 --arrivals poisson --duration 10s --histogram out.hgrm\n"
    "  accel_perf loop tcp --sizes 64:70,4KiB:20,1MiB:10 --clients 2\n"
    "  accel_perf serve 'tcp://0.0.0.0:5555?key_file=server.key&authorized_keys=clients.pub'\n"
    "  accel_perf client 'tcp://server:5555?key_file=client.key&server_key=server.pub' --size 64K --json "
    "out.json";

constexpr const char* about_open_loops =
    "Open loop (--rate): calls are due at times that are fixed in advance, and latency counts from the due time. A "
    "call\n"
    "that is late, because --depth calls are in flight or the client is slow, is sent as soon as possible. So calls "
    "that\n"
    "become due while a server stalls count with their full latency (no coordinated omission). How late calls were "
    "sent\n"
    "is reported separately; --poll busy sends them on time to the microsecond, with one core per client.";

std::string check_mix(const std::string& text) {
    return accel::perf::size_mix::parse(text) ? std::string{}
                                              : "'" + text +
                                                    "' is not a valid mix of sizes: write "
                                                    "64:70,4KiB:20,1MiB:10";
}

accel::poll_mode poll_of(const std::string& name) {
    if (name == "busy") return accel::poll_mode::busy;
    return name == "block" ? accel::poll_mode::block : accel::poll_mode::adaptive;
}

void add_poll(CLI::App& app, settings& chosen) {
    app.add_option_function<std::string>(
           "--poll", [&](const std::string& name) { chosen.poll = poll_of(name); },
           "How both ends wait (default adaptive)")
        ->check(CLI::IsMember({"busy", "adaptive", "block"}));
}

void add_workers(CLI::App& app, settings& chosen) {
    app.add_option("--workers", chosen.workers, "Threads of the server")->check(CLI::Range(1, 256));
}

void add_load(CLI::App& app, settings& chosen) {
    app.add_option_function<std::string>(
           "--size", [&](const std::string& text) { chosen.sizes = *accel::report::parse_sizes(text); },
           "Bytes of a request, one size or several: 64,4K,1M (default 64)")
        ->check(CLI::Validator(accel::report::check_sizes, "SIZE,..."));
    app.add_option_function<std::string>(
           "--response-size", [&](const std::string& text) { chosen.response_bytes = *accel::parse_size(text); },
           "Bytes of a response (default: same as the request)")
        ->check(CLI::Validator(accel::report::check_size, "SIZE"));
    app.add_option_function<std::string>(
           "--sizes", [&](const std::string& text) { chosen.mix = accel::perf::size_mix::parse(text); },
           "Requests of several sizes in one measurement, with weights: 64:70,4KiB:20,1MiB:10")
        ->check(CLI::Validator(check_mix, "SIZE:WEIGHT,..."))
        ->excludes("--size");
    app.add_option("--count", chosen.count,
                   "Calls of each size, of all clients together (default 10000, at most 4 GiB)")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}));
    app.add_option_function<std::string>(
           "--duration", [&](const std::string& text) { chosen.duration = *accel::report::parse_duration(text); },
           "How long to send calls of each size; with --count, until either limit")
        ->check(CLI::Validator(accel::report::check_duration, "TIME"));
    app.add_option("--warm-up", chosen.warm_up,
                   "Calls of each client before the measurement (default count / 10, at most 1000)");
    app.add_option("--depth", chosen.depth, "Calls in flight of each client (default 1; 64 with --rate)")
        ->check(CLI::Range(1, 65'536));
    app.add_option("--clients", chosen.clients, "Clients, each with its own channel and thread")
        ->check(CLI::Range(1, 1'024));
}

void add_open_loop(CLI::App& app, settings& chosen) {
    CLI::Option* const rate =
        app.add_option("--rate", chosen.rate, "Open loop: calls due per second, of all clients together")
            ->check(CLI::Range(0.001, 1e8));
    app.add_option_function<std::string>(
           "--arrivals",
           [&](const std::string& name) {
               chosen.arriving = name == "poisson" ? accel::perf::arrivals::poisson : accel::perf::arrivals::constant;
           },
           "Open loop: how the due times are spaced (default constant)")
        ->check(CLI::IsMember({"constant", "poisson"}))
        ->needs(rate);
}

void add_results(CLI::App& app, settings& chosen) {
    app.add_flag("--check", chosen.check, "Fill every payload with a pattern and verify it at the other end");
    app.add_option("--json", chosen.json, "Write the results to FILE (-: standard output)")->type_name("FILE");
    app.add_option("--histogram", chosen.histogram,
                   "Write the latencies to FILE in HdrHistogram's percentile format (.hgrm), in us; with several "
                   "measurements, to one FILE each, with number, scheme and size in its name")
        ->type_name("FILE");
}

/// "accel_perf: …" on one line.
std::string failure_text(const CLI::App* /*app*/, const CLI::Error& failure) {
    std::string text = failure.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return std::string{accel::perf::program} + ": " + text + " (see --help)\n";
}

}  // namespace

int main(int argc, char** argv) {
    settings chosen;
    CLI::App app{"Measures round trips of accel_transport: latency, rate, bandwidth and CPU per call."};
    app.footer(examples);
    app.set_version_flag("--version", "accel_perf " + accel::report::version_text());
    app.require_subcommand(1);
    app.failure_message(failure_text);

    CLI::App& serve = *app.add_subcommand("serve", "Answer clients until SIGINT or SIGTERM");
    serve.add_option("URI", chosen.uris, "Where to listen: one URI or several")->required();
    serve
        .add_option("--metrics", chosen.metrics,
                    "Serve /metrics and /healthz for scrapes at this address; host *: "
                    "every address")
        ->check(CLI::Validator(accel::report::check_address, "HOST:PORT"));
    CLI::App& client = *app.add_subcommand("client", "Measure against an accel_perf server");
    client.add_option("URI", chosen.uris, "The server's URI")->required()->expected(1);
    CLI::App& loop = *app.add_subcommand("loop", "Start a server in a separate process and measure against it");
    loop.add_option("URI", chosen.uris,
                    "URIs or schemes, measured one after another; without keys: insecure on "
                    "loopback")
        ->required();

    for (CLI::App* each : {&serve, &client, &loop}) {
        each->footer(examples);
        add_poll(*each, chosen);
    }
    for (CLI::App* each : {&serve, &loop}) add_workers(*each, chosen);
    for (CLI::App* each : {&client, &loop}) {
        add_load(*each, chosen);
        add_open_loop(*each, chosen);
        add_results(*each, chosen);
        each->footer(std::string{about_open_loops} + "\n\n" + examples);
    }

    CLI11_PARSE(app, argc, argv);
    if (serve.parsed()) return accel::perf::serve(chosen);
    if (client.parsed()) return accel::perf::client(chosen);
    return accel::perf::loop(chosen);
}
