// SPDX-License-Identifier: Apache-2.0
// What a request costs whose bytes a GPU works on: by transport, size and number of clients.
#include "emulated.hpp"
#include "load.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"
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
    std::vector<std::string> schemes{"local", "zmq", "tcp", "rdma", "gdr"};
    std::string payloads = "900000,4M,45M";
    std::vector<unsigned> clients{1, 4, 16};
    std::uint64_t calls = 200;
    std::uint64_t checked = 0;
    std::int16_t gpu = 0;
    bool pageable = false;
    std::string json;
    std::string serve;
};

nlohmann::json to_json(const bench::gpu_case& what, const bench::gpu_row& row, bool emulated) {
    return {{"backend", what.scheme},
            {"emulated", emulated},
            {"payload_bytes", what.payload_bytes},
            {"clients", what.clients},
            {"pinned", what.pinned},
            {"calls", row.calls},
            {"wrong", row.wrong},
            {"total_us", row.total_us},
            {"p50_us", row.p50_us},
            {"p99_us", row.p99_us},
            {"request_us", row.request_us},
            {"queue_us", row.queue_us},
            {"copy_us", row.copy_us},
            {"preprocessing_us", 0.0},
            {"inference_us", row.inference_us},
            {"response_us", row.response_us},
            {"cpu_us_per_request", row.cpu_us_per_request},
            {"calls_per_s", row.calls_per_s},
            {"ram_bytes", row.ram_bytes},
            {"gpu_bytes", row.gpu_bytes}};
}

std::vector<bench::gpu_case> cases_of(const settings& wanted, const std::vector<std::size_t>& payloads) {
    std::vector<bench::gpu_case> all;
    for (const std::size_t payload : payloads) {
        for (const unsigned clients : wanted.clients) {
            // As many bytes in all, so that no case takes for ever.
            const std::uint64_t most = std::max<std::uint64_t>((std::uint64_t{8} << 30) / payload / clients, 20);
            const std::uint64_t calls = wanted.checked > 0 ? wanted.checked / clients : std::min(wanted.calls, most);
            for (const std::string& scheme : wanted.schemes)
                all.push_back({scheme, payload / 8 * 8, clients, calls, !wanted.pageable});
        }
    }
    return all;
}

int run(const settings& wanted) {
    const auto payloads = report::parse_sizes(wanted.payloads);
    if (!payloads || payloads->front() < 8)
        return report::complain("gpu_bench", "--payload takes sizes of 8 bytes and more");
    auto ctx = context::open();
    if (!ctx) return report::complain("gpu_bench", ctx.error());
    const auto memory = memory_kind::cuda(wanted.gpu);
    report::table table({{"payload"},
                         {"clients"},
                         {"scheme", report::table::align::left},
                         {"calls"},
                         {"wrong"},
                         {"total us"},
                         {"p99"},
                         {"request"},
                         {"queue"},
                         {"copy"},
                         {"compute"},
                         {"response"},
                         {"CPU us/req"},
                         {"req/s"},
                         {"RAM MiB"},
                         {"GPU MiB"}});
    nlohmann::json rows = nlohmann::json::array();
    bool good = true;
    for (const bench::gpu_case& each : cases_of(wanted, *payloads)) {
        auto row = bench::measure(*ctx, each, memory);
        if (!row) {
            std::cerr << fmt::format("gpu_bench: {} is left out: {}\n", each.scheme, row.error().message);
            continue;
        }
        std::cerr << fmt::format("{} x {} over {}: {:.0f} us\n", each.clients, report::size_text(each.payload_bytes),
                                 each.scheme, row->total_us);
        good = good && row->wrong == 0;
        const bool emulated = bench::is_emulated(*ctx, each.scheme);
        rows.push_back(to_json(each, *row, emulated));
        const auto number = [](double value) { return fmt::format("{:.1f}", value); };
        table.add_row({report::size_text(each.payload_bytes), std::to_string(each.clients),
                       each.scheme + (emulated ? " (emulated)" : ""), std::to_string(row->calls),
                       std::to_string(row->wrong), number(row->total_us), number(row->p99_us), number(row->request_us),
                       number(row->queue_us), number(row->copy_us), number(row->inference_us), number(row->response_us),
                       number(row->cpu_us_per_request), fmt::format("{:.0f}", row->calls_per_s),
                       std::to_string(row->ram_bytes >> 20), std::to_string(row->gpu_bytes >> 20)});
    }
    std::cout << table.text()
              << "Means in microseconds, p99 beside them. compute: a kernel that adds up the request. CPU: "
                 "of the server's "
                 "process (local: of both ends).\n";
    for (const scheme_report& each : ctx->schemes()) std::cout << fmt::format("{}: {}\n", each.scheme, each.reason);
    if (!wanted.json.empty() && !report::write_json(wanted.json, rows)) return 1;
    if (rows.empty()) return report::complain("gpu_bench", "nothing could be measured");
    return good ? 0 : report::complain("gpu_bench", "answers were wrong");
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"What a request costs whose bytes a GPU works on"};
    settings wanted;
    app.add_option("--only", wanted.schemes, "schemes, comma-separated")->delimiter(',');
    app.add_option("--payload", wanted.payloads, "bytes of a request, comma-separated (900000,4M,45M)");
    app.add_option("--clients", wanted.clients, "closed-loop clients, comma-separated")->delimiter(',');
    app.add_option("--calls", wanted.calls, "calls of each client at most");
    app.add_option("--checked", wanted.checked, "instead: so many calls in all, every sum checked");
    app.add_option("--gpu", wanted.gpu, "number of the server's GPU");
    app.add_flag("--pageable", wanted.pageable, "the server's slots on the host are not pinned");
    app.add_option("--json", wanted.json, "writes the rows to FILE");
    app.add_option("--serve", wanted.serve, "is the server of another process")->group("");
    CLI11_PARSE(app, argc, argv);
    if (!wanted.serve.empty())
        return bench::serve_until_stopped(wanted.serve, memory_kind::cuda(wanted.gpu), !wanted.pageable);
    return run(wanted);
}
