// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/command_line.hpp"

#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/configuration/config_file.hpp"
#include "serving/doors/http/door_models.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace accel::examples::serving::doors {
namespace {

constexpr const char* program = "door";
constexpr const char* what_it_is =
    "A door for clients of the Open Inference Protocol (KServe v2) over HTTP: tritonclient, curl.";
constexpr const char* examples =
    "Examples:\n"
    "  door --http 127.0.0.1:8000 --model digits='tcp://127.0.0.1:5555?insecure=true'\n"
    "  curl http://127.0.0.1:8000/v2/models/digits";

/// Options as they were written.
struct written {
    std::string config;
    std::vector<std::string> models;
    std::vector<std::string> files;
};

std::string check_duration(const std::string& text) {
    return report::parse_duration(text) ? std::string{} : "'" + text + "' is no duration: write 500ms or 10s";
}

std::string check_regions(const std::string& text) {
    shared_memory::permission read;
    const auto good = shared_memory::read_permission(text, read);
    return good ? std::string{} : good.error().message;
}

void add_duration(CLI::App& app, const char* name, std::chrono::milliseconds& to, const char* about) {
    app.add_option_function<std::string>(
           name,
           [&to](const std::string& text) {
               to = std::chrono::duration_cast<std::chrono::milliseconds>(*report::parse_duration(text));
           },
           about)
        ->check(CLI::Validator(check_duration, "DURATION"));
}

void add_places(CLI::App& app, written& from, choices& to) {
    app.add_option("--config", from.config, "FILE: what is not said here (JSON, docs/serving.md)");
    app.add_option("--http", to.http, "HOST:PORT to listen at (default 127.0.0.1:8000; port 0: any free one)");
    app.add_option("--model", from.models, "NAME=URI: a model and its server, once for each");
    app.add_option("--describe", from.files, "FILE: shapes of a model that the table lacks, as its metadata say them");
    auto* certificate =
        app.add_option("--tls-certificate", to.certificate, "FILE: speak TLS, with this certificate (PEM)");
    auto* key = app.add_option("--tls-key", to.key, "FILE: the certificate's key (PEM), which others cannot read");
    certificate->needs(key);
    key->needs(certificate);
    app.add_option("--tokens", to.tokens, "FILE: bearer tokens of the clients, one a line, which others cannot read");
    app.add_option_function<std::string>(
           "--shared-memory",
           [&to](const std::string& text) { (void)shared_memory::read_permission(text, to.regions); },
           "system, cuda or both with a comma: clients of this host may register memory (default none)")
        ->check(CLI::Validator(check_regions, "KINDS"));
    app.add_flag("--insecure", to.insecure, "Listen where other machines reach it also without TLS or tokens");
    app.add_option("--metrics", to.metrics, "Answer scrapes of /metrics and /healthz there (docs/metrics.md)")
        ->check(CLI::Validator(report::check_metrics_option, "HOST:PORT"));
}

void add_limits(CLI::App& app, door_settings& to) {
    app.add_option("--max-connections", to.max_connections, "Connections at once (default 1024)")
        ->check(CLI::Range(1, 100'000));
    add_duration(app, "--idle-timeout", to.idle_timeout, "Between two requests of a connection (default 60s)");
    add_duration(app, "--handshake-timeout", to.handshake_timeout, "For TLS to begin (default 10s)");
    add_duration(app, "--head-timeout", to.head_timeout, "For a client to send its header (default 10s)");
    add_duration(app, "--body-timeout", to.body_timeout, "For a client to send its body (default 10s)");
    add_duration(app, "--write-timeout", to.write_timeout, "For a client to take an answer (default 10s)");
    add_duration(app, "--part-timeout", to.part_timeout, "For the next part of an answer (default 10s)");
    add_duration(app, "--stream-timeout", to.stream_timeout, "For all parts of an answer (default 600s)");
    app.add_option("--stream-parts", to.stream_parts, "Unread parts of an answer; each holds a slot (default 4)")
        ->check(CLI::Range(std::size_t{1}, std::size_t{max_parts}));
    add_duration(app, "--slot-timeout", to.slot_timeout, "For a call to become free (default 5s)");
    add_duration(app, "--drain-timeout", to.drain_timeout, "For open requests at the end (default 10s)");
}

result<void> add_models(const written& from, choices& to) {
    auto known = read_descriptions(from.files);
    if (!known) return known.error();
    to.described.insert(to.described.begin(), known->begin(), known->end());
    for (const std::string& each : from.models) {
        auto place = read_model_place(each);
        if (!place) return place.error();
        to.models.push_back(std::move(place).value());
    }
    return {};
}

/// Models of the file that the command line does not name.
void add_models(const choices& file, choices& to) {
    const std::vector<model_place> said = to.models;
    for (const model_place& each : file.models)
        if (std::ranges::find(said, each.name, &model_place::name) == said.end()) to.models.push_back(each);
}

std::optional<int> parse(int argc, char** argv, written& from, door_command& to) {
    CLI::App app{what_it_is};
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("{} {}", program, report::version_text()));
    add_places(app, from, to.chosen);
    add_limits(app, to.chosen.limits);
    app.add_flag("--json", to.json, "Say in JSON when it is ready, and what it has counted");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& failure) {
        return app.exit(failure);
    }
    return std::nullopt;
}

}  // namespace

std::optional<int> read_command_line(int argc, char** argv, door_command& to) {
    written from;
    if (const auto end = parse(argc, argv, from, to)) return end;
    choices file;
    if (!from.config.empty()) {
        if (auto read = read_configuration_file(from.config, file); !read)
            return report::complain(program, read.error());
        // Once more, over what the file says.
        to = {.chosen = file};
        to.chosen.models.clear();
        from = {};
        if (const auto end = parse(argc, argv, from, to)) return end;
    }
    if (auto added = add_models(from, to.chosen); !added) return report::complain(program, added.error());
    add_models(file, to.chosen);
    if (to.chosen.models.empty())
        return report::complain(program, "there is no model: give --model NAME=URI, or 'models' in --config FILE");
    return std::nullopt;
}

}  // namespace accel::examples::serving::doors
