// SPDX-License-Identifier: Apache-2.0
/// Speaks the Open Inference Protocol (KServe v2) over HTTP with any client, and forwards over any transport.
#include "report/cpu_time.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/http/command_line.hpp"
#include "serving/doors/http/door_models.hpp"
#include "serving/doors/http/http_door.hpp"
#include "serving/doors/http/region_submit.hpp"
#include "serving/doors/http/tls.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace {

namespace access = accel::examples::serving::access;
namespace doors = accel::examples::serving::doors;

constexpr const char* program = "door";

accel::result<doors::door_access> open_access(const doors::choices& chosen) {
    doors::door_access out;
    if (!chosen.certificate.empty()) {
        auto tls = doors::open_tls(chosen.certificate, chosen.key);
        if (!tls) return tls.error();
        out.tls = std::move(tls).value();
    }
    if (chosen.tokens.empty()) return out;
    auto tokens = access::token_list::read(chosen.tokens);
    if (!tokens) return tokens.error();
    out.tokens = std::move(tokens).value();
    return out;
}

/// What a door that other machines reach lacks; empty: nothing.
std::string missing_protection(const doors::http_door& door, const doors::choices& chosen) {
    if (door.is_loopback() || chosen.insecure) return {};
    const bool no_tls = chosen.certificate.empty();
    const bool no_tokens = chosen.tokens.empty();
    if (!no_tls && !no_tokens) return {};
    return fmt::format("other machines reach {}: give {}, or a loopback address, or --insecure", chosen.http,
                       no_tls && no_tokens ? "--tls-certificate, --tls-key and --tokens"
                       : no_tls            ? "--tls-certificate and --tls-key"
                                           : "--tokens");
}

std::vector<std::string> names_of(const doors::model_table& models) {
    std::vector<std::string> out;
    for (const auto& [name, each] : models) out.push_back(name);
    return out;
}

void say_ready(bool json, const doors::http_door& door, const doors::model_table& models) {
    if (json)
        fmt::print(
            "{}\n",
            nlohmann::json{{"ready", true}, {"endpoints", {door.endpoint()}}, {"models", names_of(models)}}.dump());
    else
        fmt::print("serving {} at {}\n", fmt::join(names_of(models), ","), door.endpoint());
    std::fflush(stdout);
}

void say_summary(bool json, const doors::door_counts& seen) {
    const double cpu_s = std::chrono::duration<double>(accel::report::cpu_time()).count();
    if (json)
        fmt::print("{}\n", nlohmann::json{{"connections", seen.connections},
                                          {"requests", seen.requests},
                                          {"errors", seen.errors},
                                          {"cancelled", seen.cancelled},
                                          {"cpu_s", cpu_s}}
                               .dump());
    else
        fmt::print(
            "answered {} requests of {} connections, {} with an error; {} clients left before; {:.2f} s of CPU\n",
            seen.requests, seen.connections, seen.errors, seen.cancelled, cpu_s);
}

int run(const doors::choices& chosen, bool json) {
    const std::size_t colon = chosen.http.rfind(':');
    if (colon == std::string::npos) return accel::report::complain(program, "--http takes HOST:PORT");
    auto protection = open_access(chosen);
    if (!protection) return accel::report::complain(program, protection.error());
    auto context = accel::context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return accel::report::complain(program, context.error());

    boost::asio::io_context loop{1};
    auto behind = doors::connect_models(loop, *context, chosen.models, chosen.described);
    if (!behind) return accel::report::complain(program, behind.error());
    auto regions = doors::open_regions(*context, chosen.regions, behind->models);
    if (!regions) return accel::report::complain(program, regions.error());
    protection->regions = std::move(regions).value();
    auto opened = doors::http_door::open(loop, chosen.http.substr(0, colon), chosen.http.substr(colon + 1),
                                         behind->models, chosen.limits, std::move(protection).value());
    if (!opened) return accel::report::complain(program, opened.error());
    doors::http_door& door = **opened;
    if (const std::string missing = missing_protection(door, chosen); !missing.empty())
        return accel::report::complain(program, missing);
    const auto scraped =
        accel::report::open_metrics(program, *context, chosen.metrics, [&door] { return door.metrics().families(); });
    if (scraped.failed) return 1;
    boost::asio::signal_set signals{loop, SIGINT, SIGTERM};
    signals.async_wait([&door](const boost::system::error_code&, int) { door.stop(); });
    door.start();
    say_ready(json, door, behind->models);
    loop.run();
    say_summary(json, door.counts());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    doors::door_command command;
    if (const auto end = doors::read_command_line(argc, argv, command)) return *end;
    return run(command.chosen, command.json);
}
