// SPDX-License-Identifier: Apache-2.0
/// Serves ResNet50 or MobileNetV3, with random weights, from LibTorch. Over gpu:// the network is recorded
/// once and then serves by itself, without the host; over any other scheme a handler launches it.
#include "report/address.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "torch/torch_service.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace vision = accel::examples::vision;

namespace {

constexpr const char* program = "torch_server";

void announce(const std::string& endpoint, const vision::torch_model& model) {
    fmt::print("serving {}: requests of {} bytes, answers of {}\n", endpoint, model.input_bytes(),
               model.output_bytes());
    std::fflush(stdout);
    accel::report::wait_for_stop_signal();
}

int serve_on_gpu(accel::context& context, const std::string& uri, std::int16_t gpu, vision::torch_model& model) {
    auto options = accel::gpu_service::defaults();
    options.memory = accel::memory_kind::cuda(gpu);
    auto service = accel::gpu_service::listen(context, uri, options);
    if (!service) return accel::report::complain(program, service.error());
    auto graph = accel::gpu_graph::start(*service, {1, model.input_bytes(), model.output_bytes(), 1},
                                         vision::recorder_of(model));
    if (!graph) return accel::report::complain(program, graph.error());
    announce(service->endpoint(), model);
    if (graph->stop(std::chrono::seconds{10}) != accel::status::ok)
        return accel::report::complain(program, "the GPU does not finish its work");
    const auto seen = graph->statistics();
    fmt::print("served {} requests, each in {} us on the GPU ({} nodes)\n", seen.requests,
               static_cast<double>(seen.mean.count()) / 1000, seen.nodes);
    return 0;
}

int serve_on_host(accel::context& context, const std::string& uri, std::int16_t gpu, bool replays,
                  vision::torch_model& model) {
    accel::server_options options;
    options.memory = accel::memory_kind::cuda(gpu);
    auto server = accel::server::listen(context, {uri}, vision::handler_of(model, replays), options);
    if (!server) return accel::report::complain(program, server.error());
    announce(server->endpoints().at(0), model);
    server->stop();
    fmt::print("served {} requests\n", server->statistics().requests);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string uri;
    vision::torch_model_options wanted;
    bool replays = false;
    std::string metrics;
    CLI::App app{"Serves a network of LibTorch's with random weights, on a GPU"};
    app.footer("Example:\n  torch_server 'gpu://0.0.0.0:5555?insecure=true' --model mobilenet_v3 --half");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_option("URI", uri, "Where to listen; gpu:// serves without the host")->required();
    app.add_option("--model", wanted.name, "resnet50 (default) or mobilenet_v3")
        ->check(CLI::IsMember({"resnet50", "mobilenet_v3"}));
    app.add_flag("--half", wanted.half, "Half precision, also of images and logits");
    app.add_flag("--replay", replays, "The host launches a CUDA graph instead of one kernel after another");
    app.add_option("--gpu", wanted.gpu, "Number of the GPU (default 0)");
    app.add_option("--metrics", metrics,
                   "Serve /metrics and /healthz for scrapes at this address (docs/metrics.md); host *: every address")
        ->check(CLI::Validator(accel::report::check_address, "HOST:PORT"));
    CLI11_PARSE(app, argc, argv);

    accel::report::block_stop_signals();
    auto context = accel::context::open({.metrics = !metrics.empty()});
    if (!context) return accel::report::complain(program, context.error());
    const auto scraped = accel::report::open_metrics(program, *context, metrics);
    if (scraped.failed) return 1;
    auto model = vision::torch_model::create(wanted);
    if (!model) return accel::report::complain(program, model.error());
    return uri.starts_with("gpu://") ? serve_on_gpu(*context, uri, wanted.gpu, *model)
                                     : serve_on_host(*context, uri, wanted.gpu, replays, *model);
}
