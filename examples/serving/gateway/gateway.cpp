// SPDX-License-Identifier: Apache-2.0
/// Passes requests on, from any transports to any others, or from clients of the Open Inference Protocol.
#include "report/descriptors.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/doors/program/run_doors.hpp"
#include "serving/gateway/command_line.hpp"
#include "serving/gateway/event_loop.hpp"

#include <algorithm>
#include <cstdio>
#include <list>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gateway = accel::examples::gateway;

namespace {

constexpr const char* program = "gateway";

struct servers_behind {
    std::list<gateway::server_name> names;
    std::list<gateway::upstream> servers;
};

/// A URI that serves several models is one server, or one name.
servers_behind servers_of(const gateway::settings& chosen) {
    servers_behind out;
    std::map<std::string, std::vector<std::string>> models;
    std::vector<std::string> order;
    for (const gateway::destination& each : chosen.to) {
        auto [at, added] = models.try_emplace(each.uri);
        if (added) order.push_back(each.uri);
        at->second.push_back(each.model);
    }
    for (const std::string& uri : order)
        if (gateway::is_name(uri))
            out.names.push_back({uri, models.at(uri)});
        else
            out.servers.emplace_back(uri, models.at(uri));
    return out;
}

std::vector<gateway::route> routes_of(const gateway::settings& chosen, std::list<gateway::upstream>& servers) {
    std::vector<gateway::route> out;
    for (const gateway::destination& each : chosen.to) {
        auto at = std::ranges::find(out, each.model, &gateway::route::model);
        if (at == out.end()) at = out.insert(out.end(), gateway::route(each.model, chosen.reach));
        if (!gateway::is_name(each.uri)) at->add(*std::ranges::find(servers, each.uri, &gateway::upstream::uri));
    }
    return out;
}

accel::service_table services_of(gateway::forwarder& passing, std::vector<gateway::route>& routes) {
    accel::service_table out;
    for (gateway::route& each : routes) {
        accel::handler service = [&passing, &each](accel::exchange one) { passing.take(each, std::move(one)); };
        if (each.model().empty())
            out.unnamed = std::move(service);
        else
            out.named.push_back({each.model(), std::move(service)});
    }
    return out;
}

void announce(const gateway::settings& chosen, const accel::server& front, const std::vector<gateway::route>& routes,
              std::uint64_t descriptors) {
    if (chosen.json) {
        nlohmann::json models = nlohmann::json::array();
        for (const gateway::route& each : routes)
            if (!each.model().empty()) models.push_back(each.model());
        fmt::print(
            "{}\n",
            nlohmann::json{
                {"ready", true}, {"endpoints", front.endpoints()}, {"models", models}, {"descriptors", descriptors}}
                .dump());
    } else {
        for (const std::string& each : front.endpoints()) fmt::print("forwarding at {}\n", each);
        fmt::print("at most {} descriptors\n", descriptors);
    }
    std::fflush(stdout);
}

nlohmann::json errors_of(const gateway::counts& seen) {
    nlohmann::json out = nlohmann::json::object();
    for (std::uint16_t i = 0; i < accel::status_count; ++i)
        if (seen.errors[i] > 0) out[std::string(accel::to_string(static_cast<accel::status>(i)))] = seen.errors[i];
    return out;
}

void summarise(const gateway::settings& chosen, const accel::server_statistics& front, const gateway::counts& seen) {
    nlohmann::json errors = errors_of(seen);
    if (chosen.json) {
        fmt::print("{}\n", nlohmann::json{{"requests", seen.requests},
                                          {"answers", seen.answers},
                                          {"errors", errors},
                                          {"not_found", front.not_found},
                                          {"retried", seen.retried},
                                          {"queued", seen.queued},
                                          {"request_bytes", seen.request_bytes},
                                          {"response_bytes", seen.response_bytes},
                                          {"payload_copies", seen.payload_copies},
                                          {"sessions", front.sessions_opened}}
                               .dump());
        return;
    }
    fmt::print("forwarded {} requests of {} sessions: {} answers, errors {}, {} retried, {} payload copies\n",
               seen.requests, front.sessions_opened, seen.answers, errors.dump(), seen.retried, seen.payload_copies);
}

int serve(const gateway::settings& chosen) {
    const std::uint64_t descriptors = accel::report::raise_descriptor_limit();
    auto context = accel::context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return accel::report::complain(program, context.error());
    auto [names, servers] = servers_of(chosen);
    std::vector<gateway::route> routes = routes_of(chosen, servers);
    const std::size_t calls = servers.size() * chosen.reach.channels * chosen.reach.slots;
    gateway::forwarder passing(calls, chosen.queue);
    gateway::opener opening(*context, chosen.reach, servers, names);
    if (auto reached = opening.wait_for_servers(chosen.reach.patience); !reached)
        return accel::report::complain(program, reached.error());
    accel::server_options options;
    options.workers = 0;
    auto front = accel::server::listen(*context, chosen.listen, services_of(passing, routes), options);
    if (!front) return accel::report::complain(program, front.error());
    if (front->event_fd() < 0)
        return accel::report::complain(program, "the gateway's one thread serves all URIs: leave out workers=");
    const auto scraped = accel::report::open_metrics(program, *context, chosen.metrics);
    if (scraped.failed) return 1;
    gateway::event_loop loop(passing, routes, servers, opening, chosen);
    loop.take_changes();
    announce(chosen, *front, routes, descriptors);
    loop.run(*front, [&] { accel::report::answer_hangup(program, *front, chosen.listen); });
    loop.drain(*front, std::chrono::seconds{2});
    const auto seen = front->statistics();
    front->stop();
    summarise(chosen, seen, passing.counted());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    gateway::command chosen;
    if (const auto ended = gateway::read_command_line(argc, argv, chosen)) return *ended;
    if (chosen.opens_doors) return accel::examples::serving::doors::run_doors(program, chosen.doors);
    accel::report::block_server_signals();
    return serve(chosen.passing);
}
