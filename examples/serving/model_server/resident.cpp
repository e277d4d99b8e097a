// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/resident.hpp"

#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/model_server/output.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>

namespace accel::examples::serving {
namespace {

constexpr std::chrono::seconds graph_patience{10};
/// Clients ask for room for a table of tensors as well.
constexpr std::size_t table_room = 4096;

summary summary_of(const gpu_graph& graph, const gpu_service& service, const std::string& name) {
    summary out;
    out.requests = graph.statistics().requests;
    const auto seen = service.statistics();
    out.errors = seen.expired + seen.dropped;
    out.models.push_back({name, {out.requests, out.errors, {}}});
    add_process_to(out);
    return out;
}

/// A graph takes requests of one length: the model's tensors, or a raw image.
std::size_t request_bytes(const settings& chosen, const model_shapes& shapes) {
    return chosen.resident_raw ? image_bytes(shapes.image) : payload_bytes(shapes.inputs);
}

gpu_graph_options graph_of(const settings& chosen, const model_shapes& shapes) {
    gpu_graph_options out;
    out.input_bytes = request_bytes(chosen, shapes);
    out.output_bytes = payload_bytes(shapes.outputs);
    out.instances = std::max(chosen.streams.number, 1U);
    return out;
}

int serve(const settings& chosen, gpu_service& service, model& served) {
    const std::string name = served.shapes().name;
    if (auto named = service.set_targets({name}); !named) return report::complain(program_name, named.error());
    auto graph = gpu_graph::start(service, graph_of(chosen, served.shapes()), served.recorder());
    if (!graph) return report::complain(program_name, graph.error());
    print_ready(chosen.json, {service.endpoint()}, {name});
    report::wait_for_stop_signal(
        [] { report::complain(program_name, "SIGHUP: changed keys are read again automatically"); });
    if (graph->stop(graph_patience) != status::ok)
        return report::complain(program_name, "the GPU does not finish its work");
    print_summary(chosen.json, summary_of(*graph, service, name));
    return 0;
}

}  // namespace

int run_resident(const settings& chosen, const model_spec& spec) {
    auto context = context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return report::complain(program_name, context.error());
    auto served = open_model(spec, place_of(chosen));
    if (!served) return report::complain(program_name, served.error());
    if (!(*served)->recorder())
        return report::complain(program_name, "'" + spec.name + "' cannot be recorded: serve it with --on gpu");
    auto options = gpu_service::defaults();
    options.memory = memory_kind::cuda(chosen.gpu);
    const model_shapes& shapes = (*served)->shapes();
    options.max_request_bytes = std::max(options.max_request_bytes, request_bytes(chosen, shapes) + table_room);
    options.max_response_bytes = std::max(options.max_response_bytes, payload_bytes(shapes.outputs) + table_room);
    auto service = gpu_service::listen(*context, chosen.uris.front(), options);
    if (!service) return report::complain(program_name, service.error());
    const auto scraped = report::open_metrics(program_name, *context, chosen.metrics);
    if (scraped.failed) return 1;
    return serve(chosen, *service, **served);
}

}  // namespace accel::examples::serving
