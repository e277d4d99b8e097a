// SPDX-License-Identifier: Apache-2.0
#include "report/percentiles.hpp"
#include "report/program.hpp"
#include "server.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <cstdio>
#include <iostream>
#include <utility>

#include <fmt/format.h>

namespace accel::bench {
namespace {

constexpr const char* program = "inference_bench";

void say(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

void say_ready(const network& served) {
    say(fmt::format("lengths {} {}\nready", served.input_bytes(), served.output_bytes()));
    report::wait_for_stop_signal();
}

server_options options_for(std::int16_t gpu) {
    server_options options;
    options.memory = memory_kind::cuda(gpu);
    options.streams = 1;  // there is one client, and one recording is enough
    options.security.insecure = true;
    options.peer_timeout = std::chrono::seconds{5};
    return options;
}

int serve_by_handlers(context& ctx, const network_choice& choice, network& served) {
    std::vector<server> all;
    for (const bool replays : {false, true}) {
        const handler service = served.on_host(replays);
        if (!service) continue;
        for (const char* scheme : {"rdma", "gdr"}) {
            auto made = server::listen(ctx, {std::string{scheme} + "://127.0.0.1:0"}, service, options_for(choice.gpu));
            if (!made) {
                std::cerr << fmt::format("{}: {} is left out: {}\n", program, scheme, made.error().message);
                continue;
            }
            say(fmt::format("serves {} {} {}", scheme, replays ? "replayed" : "launched", made->endpoints().at(0)));
            all.push_back(std::move(*made));
        }
    }
    say_ready(served);
    return 0;
}

void say_graph_times(const gpu_graph_statistics& seen) {
    const auto us = [](std::chrono::nanoseconds time) { return report::microseconds(time); };
    say(fmt::format("iterations {} {} {} {} {} {} {} {} {}", seen.nodes, seen.iterations, us(seen.stages.waiting),
                    us(seen.stages.copy_in), us(seen.stages.work), us(seen.stages.copy_out), us(seen.stages.answer),
                    us(seen.mean), us(seen.min)));
}

int serve_gpu_resident(context& ctx, const network_choice& choice, network& served, const std::string& who) {
    auto options = gpu_service::defaults();
    options.memory = memory_kind::cuda(choice.gpu);
    options.security.insecure = true;
    options.peer_timeout = std::chrono::seconds{5};
    options.max_sessions = 4;
    options.kernels.host_slots = who == host_slots;
    auto service = gpu_service::listen(ctx, "gpu://127.0.0.1:0", options);
    if (!service) return report::complain(program, service.error());
    auto graph = gpu_graph::start(*service, {1, served.input_bytes(), served.output_bytes(), 1}, served.recorder());
    if (!graph) return report::complain(program, graph.error());
    say(fmt::format("serves gpu {} {}", who, service->endpoint()));
    say_ready(served);
    if (graph->stop(std::chrono::seconds{10}) != status::ok)
        return report::complain(program, "the GPU does not finish its work");
    say_graph_times(graph->statistics());
    return 0;
}

}  // namespace

int serve_network(const network_choice& choice, const std::string& who) {
    report::block_stop_signals();
    auto ctx = context::open();
    if (!ctx) return report::complain(program, ctx.error());
    auto served = load_network(choice);
    if (!served) return report::complain(program, served.error());
    return who == by_handlers ? serve_by_handlers(*ctx, choice, **served)
                              : serve_gpu_resident(*ctx, choice, **served, who);
}

}  // namespace accel::bench
