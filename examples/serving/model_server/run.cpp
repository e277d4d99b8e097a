// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/run.hpp"

#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/model_server/contexts.hpp"
#include "serving/model_server/control.hpp"
#include "serving/model_server/model_registry.hpp"
#include "serving/model_server/output.hpp"
#include "serving/model_server/resident.hpp"
#include "serving/model_server/warm_up.hpp"
#include "serving/models/gpu_models.hpp"
#include "serving/models/shapes_file.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/server.hpp>

#include <memory>

#include <unistd.h>

namespace accel::examples::serving {
namespace {

result<void> load_all(model_registry& models, const std::vector<model_spec>& specs) {
    for (const model_spec& each : specs)
        if (auto loaded = models.load(each); !loaded) return loaded.error();
    return {};
}

summary summary_of(const model_registry& models) {
    summary out;
    out.models = models.statistics();
    for (const model_registry::row& each : out.models) {
        out.requests += each.seen.requests;
        out.errors += each.seen.errors;
    }
    add_process_to(out);
    return out;
}

/// What clients may know of: without the door of the warm-up.
std::vector<std::string> shown(std::vector<std::string> endpoints, const std::string& hidden) {
    std::erase(endpoints, hidden);
    return endpoints;
}

result<void> warm(context& ctx, const settings& chosen, const std::string& door, model_registry& models) {
    if (chosen.warm_up == 0) return {};
    auto done = warm_up(ctx, door, models.names(), chosen.warm_up);
    models.forget_statistics();
    return done;
}

std::unique_ptr<control> control_of(const settings& chosen, model_registry& models) {
    return chosen.control ? std::make_unique<control>(models, STDIN_FILENO) : nullptr;
}

int serve(const settings& chosen, const std::vector<model_spec>& specs) {
    auto context = context::open({.metrics = !chosen.metrics.empty()});
    if (!context) return report::complain(program_name, context.error());
    model_registry models(*context, place_of(chosen), serving_of(chosen));
    if (auto loaded = load_all(models, specs); !loaded) return report::complain(program_name, loaded.error());
    const std::string door = warm_up_uri();
    std::vector<std::string> uris = chosen.uris;
    if (chosen.warm_up > 0) uris.push_back(door);
    auto server = server::listen(*context, uris, models.services(), options_of(chosen));
    if (!server) return report::complain(program_name, server.error());
    if (auto warmed = warm(*context, chosen, door, models); !warmed)
        return report::complain(program_name, warmed.error());
    const auto scraped = report::open_metrics(program_name, *context, chosen.metrics);
    if (scraped.failed) return 1;
    print_ready(chosen.json, shown(server->endpoints(), door), models.names());
    {
        const auto commands = control_of(chosen, models);
        report::wait_for_stop_signal([&] { report::answer_hangup(program_name, *server, uris); });
    }
    server->stop();
    print_summary(chosen.json, summary_of(models));
    return 0;
}

}  // namespace

int run_server(const settings& chosen) {
    use_all_gpu_queues();
    for (const std::string& each : chosen.shapes)
        if (auto added = add_shapes_file(each); !added) return report::complain(program_name, added.error());
    auto specs = specs_of(chosen);
    if (!specs) return report::complain(program_name, specs.error());
    if (chosen.contexts > 1) return run_contexts(chosen);
    if (chosen.on == execution::gpu_resident) return run_resident(chosen, specs->front());
    return serve(chosen, *specs);
}

}  // namespace accel::examples::serving
