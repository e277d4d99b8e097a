// SPDX-License-Identifier: Apache-2.0
/// Speaks the Open Inference Protocol (KServe v2) over gRPC with any client, and forwards over any transport.
#include "report/cpu_time.hpp"
#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/grpc/door/grpc_door.hpp"
#include "serving/doors/http/door_models.hpp"
#include "serving/doors/http/region_submit.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace {

namespace doors = accel::examples::serving::doors;

constexpr const char* program = "grpc_door";

struct choices {
    std::string grpc = "127.0.0.1:8001";
    std::vector<std::string> models;
    std::vector<std::string> files;
    std::string metrics;
    bool insecure = false;
    bool json = false;
    doors::door_settings limits;
    accel::examples::serving::shared_memory::permission regions;
};

void add_duration(CLI::App& app, const char* name, std::chrono::milliseconds& to, const char* about) {
    const auto check = [](const std::string& text) {
        return accel::report::parse_duration(text) ? std::string{}
                                                   : "'" + text + "' is no duration: write 500ms or 10s";
    };
    const auto take = [&to](const std::string& text) {
        to = std::chrono::duration_cast<std::chrono::milliseconds>(*accel::report::parse_duration(text));
    };
    app.add_option_function<std::string>(name, take, about)->check(CLI::Validator(check, "DURATION"));
}

void add_options(CLI::App& app, choices& to) {
    app.add_option("--grpc", to.grpc, "HOST:PORT to listen at (default 127.0.0.1:8001; port 0: any free one)");
    app.add_option("--model", to.models, "NAME=URI: a model and its server, once for each")->required();
    app.add_option("--describe", to.files, "FILE: shapes of a model that the table lacks, as its metadata say them");
    app.add_option_function<std::string>(
        "--shared-memory",
        [&to](const std::string& text) {
            (void)accel::examples::serving::shared_memory::read_permission(text, to.regions);
        },
        "system, cuda or both with a comma: clients of this host may register memory (default none)");
    app.add_flag("--insecure", to.insecure, "Listen also where others than this machine reach it: there is no TLS");
    app.add_flag("--json", to.json, "Say in JSON when it is ready, and what it has counted");
    app.add_option("--metrics", to.metrics, "Answer scrapes of /metrics and /healthz there (docs/metrics.md)")
        ->check(CLI::Validator(accel::report::check_metrics_option, "HOST:PORT"));
    app.add_option("--max-calls", to.limits.max_connections, "Calls at once (default 1024)")
        ->check(CLI::Range(1, 100'000));
    add_duration(app, "--idle-timeout", to.limits.idle_timeout, "For a connection without calls (default 60s)");
    add_duration(app, "--body-timeout", to.limits.body_timeout, "For a client to send its message (default 10s)");
    add_duration(app, "--write-timeout", to.limits.write_timeout, "For a client to take an answer (default 10s)");
    add_duration(app, "--part-timeout", to.limits.part_timeout, "For the next part of an answer (default 10s)");
    add_duration(app, "--stream-timeout", to.limits.stream_timeout,
                 "For all parts of an answer, and for the next request of a stream (default 600s)");
    app.add_option("--stream-parts", to.limits.stream_parts, "Unread parts of an answer; each holds a slot (default 4)")
        ->check(CLI::Range(std::size_t{1}, std::size_t{doors::max_parts}));
    app.add_option("--stream-requests", to.limits.stream_requests, "Requests of a stream at once (default 8)")
        ->check(CLI::Range(1, 1024));
    add_duration(app, "--slot-timeout", to.limits.slot_timeout, "For a call to become free (default 5s)");
    add_duration(app, "--drain-timeout", to.limits.drain_timeout, "For open calls at the end (default 10s)");
}

accel::result<std::vector<doors::model_place>> read_places(const std::vector<std::string>& texts) {
    std::vector<doors::model_place> out;
    for (const std::string& each : texts) {
        auto place = doors::read_model_place(each);
        if (!place) return place.error();
        out.push_back(std::move(place).value());
    }
    return out;
}

/// True: every address that the host's name has is reached from this machine alone.
bool is_loopback(boost::asio::io_context& loop, const std::string& address) {
    boost::system::error_code failed;
    boost::asio::ip::tcp::resolver resolver{loop};
    std::string host = address.substr(0, address.rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    const auto found = resolver.resolve(host, "0", failed);
    if (failed || found.empty()) return false;
    for (const auto& each : found)
        if (!each.endpoint().address().is_loopback()) return false;
    return true;
}

std::vector<std::string> names_of(const doors::model_table& models) {
    std::vector<std::string> out;
    for (const auto& [name, each] : models) out.push_back(name);
    return out;
}

void say_ready(bool json, const std::string& endpoint, const doors::model_table& models) {
    const auto names = names_of(models);
    if (json)
        fmt::print("{}\n", nlohmann::json{{"ready", true}, {"endpoints", {endpoint}}, {"models", names}}.dump());
    else
        fmt::print("serving {} at {}\n", fmt::join(names, ","), endpoint);
    std::fflush(stdout);
}

void say_summary(bool json, const doors::door_counts& seen) {
    const double cpu_s = std::chrono::duration<double>(accel::report::cpu_time()).count();
    if (json)
        fmt::print(
            "{}\n",
            nlohmann::json{
                {"requests", seen.requests}, {"errors", seen.errors}, {"cancelled", seen.cancelled}, {"cpu_s", cpu_s}}
                .dump());
    else
        fmt::print("answered {} calls, {} with an error; {} clients left before; {:.2f} s of CPU\n", seen.requests,
                   seen.errors, seen.cancelled, cpu_s);
}

int run(const choices& chosen) {
    const auto places = read_places(chosen.models);
    if (!places) return accel::report::complain(program, places.error());
    if (chosen.grpc.rfind(':') == std::string::npos) return accel::report::complain(program, "--grpc takes HOST:PORT");
    boost::asio::io_context loop{1};
    if (!chosen.insecure && !is_loopback(loop, chosen.grpc))
        return accel::report::complain(program,
                                       "others reach this address, and there is no TLS: use a loopback "
                                       "address, or say --insecure");
    auto context = accel::context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return accel::report::complain(program, context.error());
    const auto known = doors::read_descriptions(chosen.files);
    if (!known) return accel::report::complain(program, known.error());
    auto behind = doors::connect_models(loop, *context, places.value(), known.value());
    if (!behind) return accel::report::complain(program, behind.error());
    const auto scraped = accel::report::open_metrics(program, *context, chosen.metrics);
    if (scraped.failed) return 1;
    auto opened = doors::grpc_door::open(loop, chosen.grpc, behind->models, chosen.limits);
    if (!opened) return accel::report::complain(program, opened.error());
    doors::grpc_door& door = **opened;
    auto regions = doors::open_regions(*context, chosen.regions, behind->models);
    if (!regions) return accel::report::complain(program, regions.error());
    door.set_regions(std::move(regions).value());
    boost::asio::signal_set signals{loop, SIGINT, SIGTERM};
    signals.async_wait([&door](const boost::system::error_code&, int) { door.stop(); });
    say_ready(chosen.json, door.endpoint(), behind->models);
    loop.run();
    say_summary(chosen.json, door.counts());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    choices chosen;
    CLI::App app{
        "A door for clients of the Open Inference Protocol (KServe v2) over gRPC: tritonclient, perf_analyzer."};
    app.footer(
        "Example:\n"
        "  grpc_door --grpc 127.0.0.1:8001 --model digits='tcp://127.0.0.1:5555?insecure=true'");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    add_options(app, chosen);
    CLI11_PARSE(app, argc, argv);
    return run(chosen);
}
