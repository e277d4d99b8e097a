// SPDX-License-Identifier: Apache-2.0
/// Recognises handwritten digits on a GPU that serves by itself: preprocessing and network are recorded once,
/// and the recording takes requests, answers them through the network adapter and begins anew, without the
/// host.
#include "digits/digit_answer.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_network.hpp"
#include "report/program.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/graph.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace digits = accel::examples::digits;

namespace {

constexpr const char* program = "gpu_digits";

/// The work of one iteration. A refusal is an answer, too: `digit_answer` says why.
accel::result<void> record(digits::gpu_network& model, bool raw, CUstream_st* stream,
                           const accel::device::graph_iteration& iteration) {
    if (!raw) {
        model.infer(stream, iteration.input, iteration.output);
        return {};
    }
    digits::gpu_scratch* const scratch = model.scratch_for(stream);
    model.preprocess(stream, iteration.input, scratch);
    model.infer(stream, scratch, iteration.output);
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    std::string uri = "gpu://127.0.0.1:0?insecure=true";
    std::string input = "tensor";
    accel::gpu_graph_options iterations;
    CLI::App app{"Recognises handwritten digits on a GPU; no thread of the host takes part in a request."};
    app.footer(
        "Examples:\n"
        "  gpu_digits 'gpu://0.0.0.0:5555?insecure=true'\n"
        "  digits_client 'rdma://HOST:5555?insecure=true' --input tensor");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_option("URI", uri, "Where to listen: gpu://host:port?key=value…");
    app.add_option("--input", input, "What requests are: tensor (default) or raw frames")
        ->check(CLI::IsMember({"tensor", "raw"}));
    app.add_option("--instances", iterations.instances, "Recordings that serve beside each other. Default: 1")
        ->check(CLI::Range(1, 16));
    CLI11_PARSE(app, argc, argv);
    const bool raw = input == "raw";
    iterations.input_bytes = raw ? digits::frame_bytes : digits::tensor_bytes;
    iterations.output_bytes = sizeof(digits::digit_answer);

    accel::report::block_stop_signals();
    const auto weights = digits::network::load(digits::embedded_weights());
    if (!weights.value) return accel::report::complain(program, digits::describe(weights.error));
    auto context = accel::context::open();
    if (!context) return accel::report::complain(program, context.error());
    auto options = accel::gpu_service::defaults();
    auto service = accel::gpu_service::listen(*context, uri, options);
    if (!service) return accel::report::complain(program, service.error());
    auto model = digits::gpu_network::create(service->memory().ordinal, *weights.value, iterations.instances);
    if (!model) return accel::report::complain(program, model.error());
    auto graph = accel::gpu_graph::start(*service, iterations, [&](CUstream_st* stream, const auto& iteration) {
        return record(*model, raw, stream, iteration);
    });
    if (!graph) return accel::report::complain(program, graph.error());

    fmt::print("serving {}\n", service->endpoint());
    std::fflush(stdout);
    accel::report::wait_for_stop_signal();
    if (graph->stop(std::chrono::seconds{10}) != accel::status::ok)
        return accel::report::complain(program, "the GPU does not finish its work");
    const auto seen = graph->statistics();
    fmt::print("served {} requests, each in {} us on the GPU ({} nodes)\n", seen.requests,
               static_cast<double>(seen.mean.count()) / 1000, seen.nodes);
}
