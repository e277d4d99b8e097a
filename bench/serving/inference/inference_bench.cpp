// SPDX-License-Identifier: Apache-2.0
// Where the time of an inference goes: handlers on the host over rdma, staged, and over gdr, beside a service
// that is GPU-resident.
#include "bench/kernels/emulated.hpp"
#include "load.hpp"
#include "report/program.hpp"
#include "report/table.hpp"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel;

struct settings {
    std::vector<std::string> networks = bench::network_names();
    bool half = false;
    bench::inference_settings load;
    std::string json;
    std::string serve;
    bench::network_choice served;
};

/// Of the rows of one network, that which others are compared with: rdma, staged, launched.
double baseline_of(const std::vector<bench::inference_row>& rows) {
    for (const auto& each : rows)
        if (each.how == bench::serving{"rdma", "launched"}) return each.total_us;
    return 0;
}

nlohmann::json to_json(const bench::inference_row& row, double baseline, bool emulated) {
    nlohmann::json out{{"backend", row.how.scheme},
                       {"way", row.how.way},
                       {"network", row.what.text()},
                       {"emulated", emulated},
                       {"payload_bytes", row.payload_bytes},
                       {"clients", 1},
                       {"calls", row.calls},
                       {"wrong", row.wrong},
                       {"farthest", row.farthest},
                       {"total_us", row.total_us},
                       {"p50_us", row.p50_us},
                       {"p99_us", row.p99_us},
                       {"request_us", row.request_us},
                       {"queue_us", row.queue_us},
                       {"copy_us", row.copy_us},
                       {"preprocessing_us", row.preprocessing_us},
                       {"inference_us", row.inference_us},
                       {"response_us", row.response_us},
                       {"server_us", row.server_us},
                       {"cpu_us_per_request", row.cpu_us_per_request}};
    if (baseline > 0) out["of_rdma_launched"] = row.total_us / baseline;
    if (row.graph) {
        const bench::graph_times& times = *row.graph;
        out["iterations"] = {
            {"nodes", times.nodes},        {"iterations", times.iterations}, {"waiting_us", times.waiting},
            {"copy_in_us", times.copy_in}, {"work_us", times.work},          {"copy_out_us", times.copy_out},
            {"answer_us", times.answer},   {"mean_us", times.mean},          {"min_us", times.min}};
    }
    return out;
}

std::string number(double value) {
    return fmt::format("{:.1f}", value);
}

std::vector<std::string> cells(const bench::inference_row& row, double baseline, bool emulated) {
    const double rest = row.total_us - row.request_us - row.queue_us - row.copy_us - row.preprocessing_us -
                        row.inference_us - row.response_us;
    return {row.what.text(),
            row.how.scheme + (emulated ? " (emulated)" : ""),
            row.how.way,
            std::to_string(row.calls),
            std::to_string(row.wrong),
            fmt::format("{:.1e}", row.farthest),
            number(row.total_us),
            number(row.p50_us),
            number(row.p99_us),
            baseline > 0 ? fmt::format("{:.3f}", row.total_us / baseline) : "",
            number(row.request_us),
            number(row.queue_us),
            number(row.copy_us),
            number(row.preprocessing_us),
            number(row.inference_us),
            number(row.response_us),
            number(rest),
            number(row.cpu_us_per_request)};
}

void print_graph_times(const std::vector<bench::inference_row>& rows) {
    report::table table({{"network", report::table::align::left},
                         {"nodes"},
                         {"iterations"},
                         {"waiting"},
                         {"copy in"},
                         {"work"},
                         {"copy out"},
                         {"answer"},
                         {"mean us"},
                         {"min"}});
    for (const auto& row : rows) {
        if (!row.graph) continue;
        const bench::graph_times& times = *row.graph;
        table.add_row({row.what.text(), std::to_string(times.nodes), std::to_string(times.iterations),
                       number(times.waiting), number(times.copy_in), number(times.work), number(times.copy_out),
                       number(times.answer), number(times.mean), number(times.min)});
    }
    std::cout << "\nIterations of GPU-resident services, by the GPU's clock, warming up among them:\n" << table.text();
}

constexpr const char* legend =
    "Means in microseconds, one client, one call at a time. rdma: staged through pinned memory of the host; "
    "gdr: "
    "into GPU memory.\nlaunched, replayed: a handler on the host gives the GPU the kernels one by one, or as "
    "one "
    "CUDA graph; gpu_resident: a graph\nthat takes requests itself, host_slots: with slots on the host. "
    "apart: "
    "the greatest difference of an answer, "
    "as "
    "a part of the greatest value. ratio: of the total,\nto rdma launched. rest: of the total, what is no "
    "stage. "
    "CPU: of the server's process, the emulated device's included.\n";

int run(const settings& wanted) {
    auto ctx = context::open();
    if (!ctx) return report::complain("inference_bench", ctx.error());
    report::table table({{"network", report::table::align::left},
                         {"scheme", report::table::align::left},
                         {"way", report::table::align::left},
                         {"calls"},
                         {"wrong"},
                         {"apart"},
                         {"total us"},
                         {"p50"},
                         {"p99"},
                         {"ratio"},
                         {"request"},
                         {"queue"},
                         {"copy"},
                         {"preproc."},
                         {"inference"},
                         {"response"},
                         {"rest"},
                         {"CPU us/req"}});
    std::vector<bench::inference_row> all;
    nlohmann::json document = nlohmann::json::array();
    for (const std::string& name : wanted.networks) {
        const bool digits = name.starts_with("digits");
        const auto rows = bench::measure_network(*ctx, {name, wanted.half && !digits, wanted.load.gpu}, wanted.load);
        const double baseline = baseline_of(rows);
        for (const auto& row : rows) {
            const bool emulated = bench::is_emulated(*ctx, row.how.scheme);
            table.add_row(cells(row, baseline, emulated));
            document.push_back(to_json(row, baseline, emulated));
            all.push_back(row);
        }
    }
    std::cout << table.text() << legend;
    print_graph_times(all);
    for (const scheme_report& each : ctx->schemes()) std::cout << fmt::format("{}: {}\n", each.scheme, each.reason);
    if (!bench::has_torch())
        std::cout << "resnet50 and mobilenet_v3 need a build with LibTorch (-DACCEL_EXAMPLES_TORCH=ON)\n";
    if (!wanted.json.empty() && !report::write_json(wanted.json, document)) return 1;
    if (all.empty()) return report::complain("inference_bench", "nothing could be measured");
    const bool good = std::all_of(all.begin(), all.end(), [](const auto& row) { return row.wrong == 0; });
    return good ? 0 : report::complain("inference_bench", "answers were wrong");
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Where the time of an inference goes, by handlers on the host and by a service on the GPU"};
    settings wanted;
    app.add_option("--only", wanted.networks, "networks, comma-separated")
        ->delimiter(',')
        ->check(CLI::IsMember(bench::network_names()));
    app.add_flag("--half", wanted.half, "torch's networks in half precision");
    app.add_option("--calls", wanted.load.calls, "calls of each way (500)")->check(CLI::PositiveNumber);
    app.add_option("--gpu", wanted.load.gpu, "number of the server's GPU");
    app.add_option("--json", wanted.json, "writes the rows to FILE");
    app.add_option("--serve", wanted.serve, "is the server of another process")->group("");
    app.add_option("--network", wanted.served.name)->group("");
    CLI11_PARSE(app, argc, argv);
    if (wanted.serve.empty()) return run(wanted);
    wanted.served.half = wanted.half;
    wanted.served.gpu = wanted.load.gpu;
    return bench::serve_network(wanted.served, wanted.serve);
}
