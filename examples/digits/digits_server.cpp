// SPDX-License-Identifier: Apache-2.0
/// Recognises handwritten digits for clients on any number of URIs, until SIGINT or SIGTERM.
#include "digits/service_choice.hpp"
#include "report/address.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

int main(int argc, char** argv) {
    namespace digits = accel::examples::digits;
    constexpr const char* program = "digits_server";
    std::vector<std::string> uris;
    accel::server_options options;
    std::string memory = "host";
    std::string metrics;
    CLI::App app{"Recognises handwritten digits: raw 640x480 RGB frames or 8x8 tensors of floats."};
    app.footer(
        "Examples:\n"
        "  digits_server 'tcp://127.0.0.1:5555?insecure=true'\n"
        "  digits_server 'tcp://0.0.0.0:5555?key_file=server.key&authorized_keys=clients.pub' "
        "'zmq://0.0.0.0:5556'\n"
        "Further options go into the URI (workers=2, poll=busy, ...).");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_option("URI", uris, "Where to listen: one URI or several")->required();
    app.add_option("--memory", memory,
                   "Where to work: host, cuda:0 …, or auto (a GPU where one is usable). Default: host")
        ->check(digits::check_memory_option);
    app.add_option("--metrics", metrics,
                   "Serve /metrics and /healthz for scrapes at this address (docs/metrics.md); host *: every address")
        ->check(CLI::Validator(accel::report::check_address, "HOST:PORT"));
    CLI11_PARSE(app, argc, argv);

    accel::report::block_stop_signals();
    auto context = accel::context::open({.metrics = !metrics.empty()});
    if (!context) return accel::report::complain(program, context.error());
    const auto place = digits::choose_place(*context, memory);
    if (!place) return accel::report::complain(program, place.error());
    options.memory = place.value().memory;
    auto service = digits::make_service(options.memory, options);
    if (!service) return accel::report::complain(program, service.error());
    auto server = accel::server::listen(*context, uris, std::move(service).value(), options);
    if (!server) return accel::report::complain(program, server.error());

    const auto scraped = accel::report::open_metrics(program, *context, metrics);
    if (scraped.failed) return 1;
    fmt::print("memory {}\n", digits::to_text(options.memory));
    for (const std::string& endpoint : server->endpoints()) fmt::print("serving {}\n", endpoint);
    std::fflush(stdout);
    accel::report::wait_for_stop_signal();
    const auto seen = server->statistics();
    server->stop();
    fmt::print("served {} requests of {} clients\n", seen.requests, seen.sessions_opened);
}
