// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "perf/loop_uris.hpp"
#include "perf/measure.hpp"
#include "perf/service.hpp"
#include "report/child_process.hpp"
#include "report/program.hpp"

#include <accel_transport/server.hpp>

#include <cstdio>

#include <fmt/format.h>

namespace accel::perf {
namespace {

void note(std::string_view sentence) {
    fmt::print(stderr, "{}\n", sentence);
}

/// `local` joins a server and a client of one process; there is no other way to run it.
result<std::vector<outcome>> measure_here(context& ctx, const loop_uris& ends, const settings& chosen) {
    note("local: both ends must be in one process, so it cannot run in two");
    server_options options;
    options.poll = chosen.poll;
    options.workers = chosen.workers;
    options.max_slots = 65'536;
    options.max_request_bytes = options.max_response_bytes = std::size_t{1} << 30;
    auto running = server::listen(ctx, {ends.server}, serve_request, options);
    if (!running) return running.error();
    return measure(ctx, running->endpoints().front() + ends.client_query, chosen);
}

result<std::vector<outcome>> measure_two_processes(context& ctx, const loop_uris& ends, const settings& chosen) {
    auto server = report::child_process::start({report::program_path(), "serve", ends.server, "--poll",
                                                poll_name(chosen.poll), "--workers", std::to_string(chosen.workers)});
    if (!server) return server.error();
    const auto endpoint = server->wait_for("serving ", std::chrono::seconds{10});
    if (!endpoint)
        return error{status::system_error, 0, fmt::format("the server process did not start on {}", ends.server)};
    auto outcomes = measure(ctx, *endpoint + ends.client_query, chosen);
    server->stop(std::chrono::seconds{5});
    return outcomes;
}

result<std::vector<outcome>> measure_uri(context& ctx, const std::string& uri, const settings& chosen) {
    const auto ends = split_for_loop(uri);
    if (!ends) return ends.error();
    if (ends.value().made_insecure) note(fmt::format("{}: no keys given; insecure, on loopback only", uri));
    const bool here = ends.value().server.starts_with("local://");
    return here ? measure_here(ctx, ends.value(), chosen) : measure_two_processes(ctx, ends.value(), chosen);
}

}  // namespace

int loop(const settings& chosen) {
    auto ctx = context::open();
    if (!ctx) return report::complain(program, ctx.error());
    std::vector<outcome> all;
    int failed = 0;
    for (const std::string& uri : chosen.uris) {
        const auto outcomes = measure_uri(*ctx, uri, chosen);
        if (!outcomes) {
            failed = report::complain(program, outcomes.error());
            continue;  // the other URIs count all the same
        }
        all.insert(all.end(), outcomes.value().begin(), outcomes.value().end());
    }
    if (all.empty()) return failed;
    return present(all, chosen) ? failed : 1;
}

}  // namespace accel::perf
