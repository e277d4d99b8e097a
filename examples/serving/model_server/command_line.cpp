// SPDX-License-Identifier: Apache-2.0
#include "report/address.hpp"
#include "report/durations.hpp"
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"
#include "serving/model_server/settings.hpp"

#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

constexpr const char* about = "Serves models over any number of URIs, until SIGINT or SIGTERM.";
constexpr const char* examples =
    "A MODEL is NAME or NAME=SPEC. SPEC: builtin (digits), synthetic (shapes and work of the table),\n"
    "FILE.pt (TorchScript), FILE.pt2 (AOTInductor).\n"
    "Examples:\n"
    "  model_server 'tcp://127.0.0.1:5555?insecure=true' --model digits --model resnet50=synthetic\n"
    "  model_server 'tcp://0.0.0.0:5555?key_file=server.key&authorized_keys=clients.pub' rdma://0.0.0.0:5556 \\\n"
    "    --model resnet50=resnet50.pt --on gpu --streams client --warm-up 10\n"
    "  model_server 'tcp://127.0.0.1:5555?insecure=true' --model digits --max-batch 16 --max-wait 2ms --json\n"
    "Further options go into the URI (workers=2, poll=busy, ...).";

std::string check_streams(const std::string& text) {
    return parse_streams(text) ? std::string{}
                               : "'" + text +
                                     "' is not a valid value: expected a number from 1 to 256 "
                                     "or 'client'";
}

void add_what(CLI::App& app, settings& out) {
    app.add_option("URI", out.uris, "Where to listen: one URI or several")->required();
    app.add_option("--model", out.models, "NAME[=SPEC]; repeatable")->required();
    app.add_option("--shapes", out.shapes, "Describes a model that the table does not have (JSON); repeatable")
        ->type_name("FILE");
}

void add_where(CLI::App& app, settings& out) {
    static const std::map<std::string, execution> places{
        {"host", execution::host}, {"gpu", execution::gpu}, {"gpu-resident", execution::gpu_resident}};
    app.add_option_function<std::string>(
           "--on", [&](const std::string& name) { out.on = places.at(name); },
           "Where to compute: host (default), gpu (a stream for each request), gpu-resident (a recorded graph, over "
           "gpu://)")
        ->check(CLI::IsMember({"host", "gpu", "gpu-resident"}));
    app.add_flag("--resident-raw", out.resident_raw, "gpu-resident: requests are raw images, not tensors");
    app.add_option("--gpu", out.gpu, "Number of the GPU (default 0)")->check(CLI::Range(0, 255));
    app.add_option_function<std::string>(
           "--streams", [&](const std::string& text) { out.streams = *parse_streams(text); },
           "Requests processed at once: streams of the GPU (or 'client': one per client), threads of a model on the "
           "host")
        ->check(CLI::Validator(check_streams, "N|client"));
    app.add_option_function<std::string>(
           "--graphs", [&](const std::string& name) { out.graphs = name == "on"; },
           "With --on gpu: replay each model as a CUDA graph (on, default) or launch its kernels one by one (off)")
        ->check(CLI::IsMember({"on", "off"}));
    app.add_option("--priority-streams", out.priority_streams, "Additional streams for channels of high priority")
        ->check(CLI::Range(0, 64));
    app.add_option("--contexts", out.contexts, "Processes that serve in parallel, at consecutive ports")
        ->check(CLI::Range(1, 64));
}

void add_how(CLI::App& app, settings& out) {
    app.add_option("--max-batch", out.max_batch, "Collect requests into batches of up to this size")
        ->check(CLI::Range(1, 1024));
    app.add_option_function<std::string>(
           "--max-wait", [&](const std::string& text) { out.max_wait = *report::parse_duration(text); },
           "How long a batch's first request waits for others (default 2ms)")
        ->check(CLI::Validator(report::check_duration, "DURATION"));
    app.add_option("--warm-up", out.warm_up, "Inferences of each model before serving begins")
        ->check(CLI::Range(0, 100'000));
    app.add_option("--synthetic-gflops", out.synthetic.gflops_per_second, "GFLOP/s of synthetic models (default 2000)")
        ->check(CLI::Range(0.001, 1e9));
    app.add_option_function<std::string>(
           "--synthetic-pace",
           [&](const std::string& name) {
               out.synthetic.pace = name == "busy" ? synthetic_pace::busy : synthetic_pace::wait;
           },
           "Synthetic models on the host wait like a single accelerator (wait, default) or compute (busy)")
        ->check(CLI::IsMember({"wait", "busy"}));
}

void add_rest(CLI::App& app, settings& out) {
    app.add_option("--metrics", out.metrics,
                   "Serve /metrics and /healthz for scrapes at this address (docs/metrics.md); host *: every address")
        ->check(CLI::Validator(report::check_address, "HOST:PORT"));
    app.add_flag("--control", out.control, "Read 'load NAME[=SPEC]', 'unload NAME' and 'list' from standard input");
    app.add_flag("--json", out.json, "Print one line of JSON when ready, and one at the end");
}

}  // namespace

std::optional<int> read_command_line(int argc, char** argv, settings& out) {
    CLI::App app{about};
    app.footer(examples);
    app.set_version_flag("--version", fmt::format("{} {}", program_name, report::version_text()));
    add_what(app, out);
    add_where(app, out);
    add_how(app, out);
    add_rest(app, out);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& wrong) {
        return app.exit(wrong);
    }
    const std::string contradiction = contradiction_in(out);
    if (contradiction.empty()) return std::nullopt;
    return report::complain(program_name, contradiction);
}

}  // namespace accel::examples::serving
