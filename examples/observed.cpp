// SPDX-License-Identifier: Apache-2.0
/// Calls that belong to a trace, and the metrics of both ends: observed [URI [TRACEPARENT]]
#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

namespace {

using namespace accel;
using namespace std::chrono_literals;

/// A tracer makes ids, and sends spans to where they are collected. This one prints them.
trace_context child_of(const trace_context& parent) {
    static std::mt19937_64 random{std::random_device{}()};
    trace_context out = parent;
    const std::uint64_t id = random() | 1;
    for (std::size_t i = 0; i < out.parent_id.size(); ++i) out.parent_id[i] = static_cast<std::uint8_t>(id >> 8 * i);
    return out;
}

void report(const char* span, const trace_context& own, std::chrono::nanoseconds took) {
    std::printf("%-7s %s %8.1f us\n", span, own.format().c_str(), static_cast<double>(took.count()) / 1e3);
}

void serve(exchange request) {
    const auto start = std::chrono::steady_clock::now();
    const auto caller = request.trace();
    const std::size_t length = std::min(request.request().size(), request.response().size());
    std::copy_n(request.request().begin(), length, request.response().begin());
    // The id of a span of its own: calls that this handler makes would name it as their parent.
    if (caller) report("server", child_of(*caller), std::chrono::steady_clock::now() - start);
    request.reply(length);
}

bool ask(channel& server, const trace_context& trace) {
    const auto start = std::chrono::steady_clock::now();
    const auto call = server.begin();
    if (!call) return false;
    if (server.submit(call->id, 100, {.trace = trace, .target = target_of("echo")}) != status::ok) return false;
    completion c;
    if (server.wait({&c, 1}, 10s) == 0) return false;
    const bool good = c.status == status::ok && c.trace != nullptr && *c.trace == trace;
    report("client", trace, std::chrono::steady_clock::now() - start);
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    const auto parent =
        trace_context::parse(argc > 2 ? argv[2] : "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    if (!parent) {
        std::fputs("observed: that is no traceparent\n", stderr);
        return 2;
    }
    auto ctx = context::open({.metrics = true}).value();
    auto listening = server::listen(ctx, argc > 1 ? argv[1] : "local://observed", {{{"echo", serve}}, {}}).value();
    const std::string keys = argc > 1 ? "?insecure=true" : "";
    auto connected = channel::connect(ctx, listening.endpoints().front() + keys);
    if (!connected) {
        std::fprintf(stderr, "%s\n", connected.error().message.c_str());
        return 1;
    }
    bool good = true;
    for (int i = 0; i < 3; ++i) good = ask(*connected, child_of(*parent)) && good;

    // As a scrape would see it: all of it, or one number.
    const metrics_snapshot seen = ctx.metrics();
    std::fputs(prometheus_text(seen).c_str(), stdout);
    const double calls = seen.sum("accel_calls_total", {{"role", "client"}, {"target", "echo"}});
    std::printf("%.0f calls were counted\n", calls);
    return good && calls == 3 ? 0 : 1;
}
