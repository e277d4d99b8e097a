// SPDX-License-Identifier: Apache-2.0
#include "serving/gateway/door_options.hpp"

#include "report/address.hpp"
#include "report/durations.hpp"
#include "serving/doors/configuration/model_options.hpp"
#include "serving/doors/configuration/passed_names.hpp"

#include <accel_transport/metadata.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include <CLI/CLI.hpp>

namespace accel::examples::gateway {

using serving::doors::add_passed_name;
using serving::doors::choices;
using serving::doors::door_settings;
using serving::doors::model_place;

namespace {

std::string check_regions(const std::string& text) {
    serving::shared_memory::permission read;
    const auto good = serving::shared_memory::read_permission(text, read);
    return good ? std::string{} : good.error().message;
}

std::string check_passed(const std::string& name) {
    std::vector<std::string> ignored;
    const auto good = serving::doors::add_passed_name(name, ignored);
    return good ? std::string{} : good.error().message;
}

void add_time(CLI::App& app, const char* name, std::chrono::milliseconds& to, const char* about) {
    app.add_option_function<std::string>(
           name,
           [&to](const std::string& text) {
               to = std::chrono::duration_cast<std::chrono::milliseconds>(*report::parse_duration(text));
           },
           about)
        ->check(CLI::Validator(report::check_duration, "DURATION"));
}

void add_places(CLI::App& app, door_words& from, choices& to) {
    app.add_option("--config", from.config, "FILE with options that are not given here (JSON, docs/serving.md)");
    app.add_option("--http", to.http,
                   "HOST:PORT of the HTTP door (default 127.0.0.1:8000 if no door is named); host *: every address of "
                   "this machine; port 0: any free port")
        ->check(CLI::Validator(report::check_address, ""));
    app.add_option("--grpc", to.grpc, "HOST:PORT of the gRPC door, likewise")
        ->check(CLI::Validator(report::check_address, ""));
    app.add_option("--model", from.models, "NAME=URI: a model and a server that has it; repeat for each pair");
    app.add_option("--shapes", from.files, "Describes a model that the table does not have (JSON); repeatable")
        ->type_name("FILE");
    auto* certificate =
        app.add_option("--tls-certificate", to.certificate, "FILE: use TLS, with this certificate (PEM)");
    auto* key = app.add_option("--tls-key", to.key,
                               "FILE: the certificate's key (PEM), which other users must not be "
                               "able to read");
    certificate->needs(key);
    key->needs(certificate);
    app.add_option("--tokens", to.tokens,
                   "FILE: bearer tokens of the clients, one per line, which other users must "
                   "not be able to read");
    app.add_option_function<std::string>(
           "--shared-memory",
           [&to](const std::string& text) { (void)serving::shared_memory::read_permission(text, to.regions); },
           "system, cuda or both with a comma: which memory clients of this host may register (default none)")
        ->check(CLI::Validator(check_regions, "KINDS"));
    app.add_option_function<std::vector<std::string>>(
           "--pass-header",
           [&to](const std::vector<std::string>& all) {
               to.limits.passed_headers.clear();
               for (const std::string& each : all) (void)add_passed_name(each, to.limits.passed_headers);
           },
           "A header of requests and answers, or metadata of gRPC, that is metadata of the call; repeatable")
        ->type_name("NAME")
        ->check(CLI::Validator(check_passed, ""))
        ->expected(1, max_metadata_entries);
    app.add_flag("--insecure", to.insecure, "Allow addresses that other machines can reach without TLS or tokens");
}

void add_door_limits(CLI::App& app, door_settings& to) {
    app.add_option("--max-connections", to.max_connections, "Connections of each door (default 1024)")
        ->check(CLI::Range(1, 100'000));
    app.add_option("--address-connections", to.max_address_connections,
                   "Connections of each door from one address (default half of --max-connections)")
        ->check(CLI::Range(1, 100'000));
    app.add_option("--max-calls", to.max_calls, "Open gRPC calls (default 1024)")->check(CLI::Range(1, 100'000));
    app.add_option("--model-requests", to.max_model_requests, "Open requests per model and door (default 1024)")
        ->check(CLI::Range(1, 1'000'000));
    add_time(app, "--idle-timeout", to.idle_timeout, "Idle time between two requests of a connection (default 60s)");
    add_time(app, "--handshake-timeout", to.handshake_timeout, "Time for the TLS handshake (default 10s)");
    add_time(app, "--head-timeout", to.head_timeout,
             "Time for a client to send its header; for the first one, from the connection on (default 10s)");
    add_time(app, "--body-timeout", to.body_timeout, "Time for a client to send its body (default 10s)");
    app.add_option("--body-rate", to.body_rate,
                   "Lowest rate of a body in bytes per second, in each --body-grace (default 16384; 0: any)")
        ->check(CLI::Range(0, 1 << 30));
    add_time(app, "--body-grace", to.body_grace, "Period over which --body-rate is measured (default 2s)");
    add_time(app, "--write-timeout", to.write_timeout, "Time for a client to take an answer (default 10s)");
    add_time(app, "--part-timeout", to.part_timeout, "Time for the next part of an answer (default 10s)");
    add_time(app, "--stream-timeout", to.stream_timeout,
             "Time for all parts of an answer, and for the next request of a gRPC stream (default 600s)");
    app.add_option("--stream-parts", to.stream_parts, "Unread parts of an answer; each holds a slot (default 4)")
        ->check(CLI::Range(std::size_t{1}, std::size_t{serving::doors::max_parts}));
    app.add_option("--stream-requests", to.stream_requests, "Open requests of a gRPC stream (default 8)")
        ->check(CLI::Range(1, 1024));
    add_time(app, "--slot-timeout", to.slot_timeout, "Time until a call must become free (default 5s)");
    add_time(app, "--ping-interval", to.ping_interval,
             "Shortest time between a gRPC client's pings; a third quicker one ends its connection (default 5s)");
    add_time(app, "--keepalive-time", to.keepalive_time,
             "Silence after which the door pings a gRPC client (default 60s)");
    add_time(app, "--keepalive-timeout", to.keepalive_timeout,
             "Time for a gRPC client to answer a ping of the door (default 20s)");
    add_time(app, "--drain-delay", to.drain_delay,
             "How long to stay open after SIGTERM, no longer ready (default 0s; under Kubernetes 5s to 15s)");
    add_time(app, "--drain-timeout", to.drain_timeout, "Time for open requests at the end (default 10s)");
}

/// Models of the file that the command line does not name.
void add_models_of(const choices& file, choices& to) {
    const std::vector<model_place> said = to.models;
    for (const model_place& each : file.models)
        if (std::ranges::find(said, each.name, &model_place::name) == said.end()) to.models.push_back(each);
}

}  // namespace

void add_door_options(CLI::App& app, door_words& from, choices& to) {
    add_places(app, from, to);
    add_door_limits(app, to.limits);
}

result<void> add_models(const door_words& from, const choices& file, choices& to) {
    auto known = serving::doors::read_descriptions(from.files);
    if (!known) return known.error();
    to.described.insert(to.described.begin(), known->begin(), known->end());
    for (const std::string& each : from.models) {
        auto place = serving::doors::read_model_place(each);
        if (!place) return place.error();
        to.models.push_back(std::move(place).value());
    }
    add_models_of(file, to);
    return {};
}

}  // namespace accel::examples::gateway
