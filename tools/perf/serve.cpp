// SPDX-License-Identifier: Apache-2.0
#include "perf/commands.hpp"
#include "perf/service.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"

#include <accel_transport/server.hpp>

#include <cstdio>

#include <fmt/format.h>

namespace accel::perf {

int serve(const settings& chosen) {
    report::block_stop_signals();
    auto ctx = context::open({.metrics = !chosen.metrics.empty()});
    if (!ctx) return report::complain(program, ctx.error());
    server_options options;
    options.poll = chosen.poll;
    options.workers = chosen.workers;
    options.max_slots = 65'536;
    options.max_request_bytes = options.max_response_bytes = std::size_t{1} << 30;
    auto running = server::listen(*ctx, chosen.uris, serve_request, options);
    if (!running) return report::complain(program, running.error());
    const auto scraped = report::open_metrics(program, *ctx, chosen.metrics);
    if (scraped.failed) return 1;
    for (const std::string& endpoint : running->endpoints()) fmt::print("serving {}\n", endpoint);
    std::fflush(stdout);
    report::wait_for_stop_signal();
    const server_statistics seen = running->statistics();
    running->stop();
    fmt::print("served {} requests of {} sessions\n", seen.requests, seen.sessions_opened);
    return 0;
}

}  // namespace accel::perf
