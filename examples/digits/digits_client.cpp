// SPDX-License-Identifier: Apache-2.0
/// Sends test images to a digits_server and says how many answers were right and where the time went.
#include "digits/digits_row.hpp"
#include "digits/service_choice.hpp"
#include "report/program.hpp"

#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

namespace digits = accel::examples::digits;
constexpr const char* program = "digits_client";

struct settings {
    digits::load_options load{.uri = {}, .clients = 1, .requests = 100, .channel = {}};
    std::string json;
    bool progress = false;
    bool serve_here = false;
    std::string memory = "host";
};

std::optional<int> parse(int argc, char** argv, settings& chosen) {
    CLI::App app{"Sends handwritten digits to a digits_server and checks its answers."};
    app.footer(
        "Examples:\n"
        "  digits_client 'tcp://127.0.0.1:5555?insecure=true'\n"
        "  digits_client 'tcp://server:5555?key_file=client.key&server_key=server.pub' --clients 4 --input "
        "tensor\n"
        "  digits_client local://digits --serve-here");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_option("URI", chosen.load.uri, "The server's URI")->required();
    app.add_option("--clients", chosen.load.clients, "Channels, each with its own thread")->check(CLI::Range(1, 1000));
    app.add_option("--requests", chosen.load.requests, "Requests of each client, one after the other")
        ->check(CLI::Range(1, 10'000'000));
    app.add_option_function<std::string>(
           "--input",
           [&](const std::string& name) {
               chosen.load.form = name == "raw" ? digits::input_form::raw : digits::input_form::tensor;
           },
           "raw: frames that the server preprocesses (default); tensor: ready tensors")
        ->check(CLI::IsMember({"raw", "tensor"}));
    app.add_option("--json", chosen.json, "Write the result to FILE (-: standard output)")->type_name("FILE");
    app.add_flag("--progress", chosen.progress, "Print a line every 200 ms, for programs to read");
    app.add_flag("--serve-here", chosen.serve_here, "Serve the URI in this process too (local:// needs it)");
    app.add_option("--memory", chosen.memory, "With --serve-here, where to work: host, cuda:0 … or auto")
        ->check(digits::check_memory_option);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e);
    }
    return std::nullopt;
}

void say(std::string_view line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

/// Says how far the load is, until asked to stop.
void report_progress(const std::stop_token& stop, const digits::load_progress& progress) {
    while (!stop.stop_requested()) {
        say(fmt::format("progress {}", progress.answered.load()));
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
    }
}

/// The exit status.
int run(accel::context& context, const settings& chosen) {
    digits::load_progress progress;
    std::jthread reporter;
    if (chosen.progress) {
        progress.on_start = [] { say("started"); };
        reporter = std::jthread{[&](const std::stop_token& stop) { report_progress(stop, progress); }};
    }
    auto outcome = digits::run_load(context, chosen.load, progress);
    if (chosen.progress) {
        say("finished");
        reporter.request_stop();
        reporter.join();
    }
    if (!outcome) return accel::report::complain(program, outcome.error());
    const digits::digits_row row = digits::row_of(chosen.load, outcome.value());
    if (!chosen.json.empty() && !accel::report::write_json(chosen.json, digits::to_json(row))) return 1;
    if (chosen.json.empty()) fmt::print("{}", digits::table_text({row}));
    if (outcome->failed == 0) return 0;
    return accel::report::complain(program, fmt::format("{} requests were not answered; the first failed because: {}",
                                                        outcome->failed, outcome->failure));
}

}  // namespace

int main(int argc, char** argv) {
    settings chosen;
    if (const auto ended = parse(argc, argv, chosen)) return *ended;
    auto context = accel::context::open();
    if (!context) return accel::report::complain(program, context.error());
    if (!chosen.serve_here) return run(*context, chosen);

    const auto place = digits::choose_place(*context, chosen.memory);
    if (!place) return accel::report::complain(program, place.error());
    accel::server_options options;
    options.memory = place.value().memory;
    auto service = digits::make_service(options.memory, options);
    if (!service) return accel::report::complain(program, service.error());
    auto server = accel::server::listen(*context, {chosen.load.uri}, std::move(service).value(), options);
    if (!server) return accel::report::complain(program, server.error());
    return run(*context, chosen);
}
