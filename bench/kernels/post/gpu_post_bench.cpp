// SPDX-License-Identifier: Apache-2.0
// What posting work requests costs, from a GPU's threads, warps and blocks, and from the CPU.
#include "cases.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"
#include "rings.hpp"
#include "verbs_post.hpp"

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel;

constexpr int nothing_to_run_on = 77;
constexpr std::size_t max_payload_bytes = std::size_t{1} << 30;

struct settings {
    std::vector<std::string> only{"post", "payload", "cpu", "device"};
    std::string payloads = "8,64,256,1K,4K,64K";
    double milliseconds = 20;
    unsigned repeats = 3;
    int gpu = 0;
    std::string device;
    std::uint64_t rounds = 2'000;
    std::string json;
    [[nodiscard]] bool wants(const char* section) const {
        return std::find(only.begin(), only.end(), section) != only.end();
    }
};

/// A line of the tables and of the JSON.
struct line {
    std::string poster;
    std::string memory;
    std::string order;
    std::string wire = "none";  ///< or the device
    bool emulated = false;
    bench::post_case what;
    double ns = 0;
    double rate = 0;
    bool compared = false;  ///< with what the CPU makes
};

double gigabits(const line& of) {
    return of.rate * of.what.payload_bytes * 8 / 1e9;
}

class bench_run {
  public:
    explicit bench_run(const settings& wanted) : wanted_(wanted) {}
    [[nodiscard]] int run();

  private:
    [[nodiscard]] bool on_gpu(const std::vector<bench::post_case>& cases);
    void on_cpu(const std::vector<bench::post_case>& cases);
    [[nodiscard]] bool on_device();
    [[nodiscard]] bool stock(bench::verbs_post& on);
    [[nodiscard]] bool rounds(bench::verbs_post& on);
    void print() const;
    [[nodiscard]] nlohmann::json document() const;
    [[nodiscard]] static bool fail(const std::string& what, const std::string& why) {
        std::cerr << fmt::format("gpu_post_bench: {}: {}\n", what, why);
        return false;
    }

    const settings& wanted_;
    std::unique_ptr<bench::post_rings> rings_;
    std::vector<line> lines_;
    std::string device_;
};

bool bench_run::on_gpu(const std::vector<bench::post_case>& cases) {
    bool good = true;
    for (const bench::post_case& each : cases) {
        auto row = rings_->measure(each, wanted_.milliseconds, wanted_.repeats);
        if (!row) {
            good = fail(bench::text_of(each), row.error().message);
            continue;
        }
        if (!row->as_on_cpu) good = fail(bench::text_of(each), "the ring does not hold what the CPU would post");
        line out;
        out.poster = bench::poster_text(each);
        out.memory = each.where == bench::place::gpu ? "GPU" : "host";
        out.order = bench::order_text(each.how);
        out.what = each;
        out.ns = row->ns_per_request;
        out.rate = row->requests_per_s;
        out.compared = row->as_on_cpu;
        lines_.push_back(out);
    }
    return good;
}

void bench_run::on_cpu(const std::vector<bench::post_case>& cases) {
    for (const bench::post_case& each : cases) {
        const bench::post_row row = bench::measure_on_cpu(each, wanted_.milliseconds, wanted_.repeats);
        line out;
        out.poster = "CPU thread";
        out.memory = "host";
        out.order = bench::order_text(each.how);
        out.what = each;
        out.ns = row.ns_per_request;
        out.rate = row.requests_per_s;
        lines_.push_back(out);
    }
}

bool bench_run::stock(bench::verbs_post& on) {
    constexpr std::uint32_t payload_bytes = 64;
    bool good = true;
    for (const std::uint32_t batch : bench::thread_batches) {
        for (const bool own : {false, true}) {
            const auto requests = std::max<std::uint64_t>(wanted_.rounds, std::uint64_t{batch} * 100);
            auto took =
                own ? on.own_post_ns(batch, payload_bytes, requests) : on.stock_post_ns(batch, payload_bytes, requests);
            line out;
            out.poster = own ? "CPU thread" : "ibv_post_send";
            if (!took) {
                // Its queues are driven directly only on an mlx5 device.
                if (took.code() != status::unsupported) good = fail(out.poster, took.error().message);
                continue;
            }
            out.memory = "host";
            out.order = own ? bench::order_text(bench::ordering::two_fences) : "libmlx5's";
            out.wire = device_;
            out.emulated = on.is_emulated();
            out.what.batch = batch;
            out.what.payload_bytes = payload_bytes;
            out.ns = *took;
            out.rate = 1e9 / *took;
            lines_.push_back(out);
        }
    }
    return good;
}

bool bench_run::rounds(bench::verbs_post& on) {
    constexpr std::uint32_t payload_bytes = 64;
    auto queues = on.queues();
    if (!queues) return fail("rounds", queues.error().message) || queues.code() == status::unsupported;
    on.clear();
    auto row = bench::measure_rounds(*queues, payload_bytes, wanted_.rounds);
    if (!row) return fail("rounds", row.error().message);
    if (!on.has_arrived(payload_bytes)) return fail("rounds", "what was written did not arrive");
    for (const bool whole : {false, true}) {
        line out;
        out.poster = whole ? "thread, until completed" : "thread";
        out.memory = "host";
        out.order = bench::order_text(bench::ordering::two_fences);
        out.wire = device_;
        out.emulated = on.is_emulated();
        out.what.payload_bytes = payload_bytes;
        out.ns = whole ? row->round_ns : row->post_ns;
        out.rate = 1e9 / row->round_ns;
        lines_.push_back(out);
    }
    return true;
}

bool bench_run::on_device() {
    auto opened = bench::verbs_post::open(wanted_.device);
    // Without one there is nothing to measure, unless it was asked for.
    if (!opened) return fail("no RDMA device", opened.error().message) || wanted_.device.empty();
    device_ = (*opened)->describe();
    bool good = stock(**opened);
    if (rings_) good = rounds(**opened) && good;
    return good;
}

void bench_run::print() const {
    report::table table({{"poster", report::table::align::left},
                         {"queues"},
                         {"memory", report::table::align::left},
                         {"order", report::table::align::left},
                         {"a doorbell"},
                         {"payload"},
                         {"form", report::table::align::left},
                         {"ns/request"},
                         {"M/s"},
                         {"Gb/s worth"},
                         {"device", report::table::align::left}});
    for (const line& each : lines_) {
        const bench::post_case& what = each.what;
        table.add_row({each.poster, std::to_string(what.queues), each.memory, each.order, std::to_string(what.batch),
                       report::size_text(what.payload_bytes), what.carried ? "carried" : "named",
                       fmt::format("{:.1f}", each.ns), fmt::format("{:.2f}", each.rate / 1e6),
                       fmt::format("{:.1f}", gigabits(each)),
                       each.wire == "none" ? "none" : (each.emulated ? "yes (emulated)" : "yes")});
    }
    std::cout << table.text()
              << "device none: the posting side is real, there is no wire; nobody reads the ring, and its "
                 "blocks are given back by count.\n"
                 "Gb/s worth: what the requests name or carry, if it travelled. ns/request: of one poster; "
                 "M/s: of all.\n";
    if (rings_) std::cout << fmt::format("GPU: {}, {} SMs\n", rings_->name(), rings_->processors());
    if (!device_.empty()) std::cout << fmt::format("device: {}\n", device_);
}

nlohmann::json bench_run::document() const {
    nlohmann::json rows = nlohmann::json::array();
    for (const line& each : lines_) {
        rows.push_back({{"poster", each.poster},
                        {"queues", each.what.queues},
                        {"memory", each.memory},
                        {"order", each.order},
                        {"batch", each.what.batch},
                        {"payload_bytes", each.what.payload_bytes},
                        {"carried", each.what.carried},
                        {"ns_per_request", each.ns},
                        {"requests_per_s", each.rate},
                        {"gbit_per_s", gigabits(each)},
                        {"device", each.wire},
                        {"emulated", each.emulated},
                        {"compared", each.compared}});
    }
    return rows;
}

int bench_run::run() {
    const auto payloads = report::parse_sizes(wanted_.payloads);
    const bool in_range = payloads && std::all_of(payloads->begin(), payloads->end(), [](std::size_t bytes) {
                              return bytes > 0 && bytes <= max_payload_bytes;
                          });
    if (!in_range) return report::complain("gpu_post_bench", "--payload takes sizes from 1 to 1G, as in 64,1K");
    const bool needs_gpu = wanted_.wants("post") || wanted_.wants("payload");
    auto opened = bench::post_rings::open(wanted_.gpu);
    if (opened) rings_ = std::move(*opened);
    if (!rings_ && needs_gpu) {
        report::complain("gpu_post_bench", opened.error().message + "; --only cpu,device needs no GPU");
        return nothing_to_run_on;
    }
    bool good = true;
    if (wanted_.wants("post")) good = on_gpu(bench::post_cases(rings_->processors())) && good;
    if (wanted_.wants("payload")) good = on_gpu(bench::payload_cases(*payloads, rings_->processors())) && good;
    if (wanted_.wants("cpu")) on_cpu(bench::cpu_cases(*payloads));
    if (wanted_.wants("device")) good = on_device() && good;
    if (lines_.empty()) return report::complain("gpu_post_bench", "nothing could be measured");
    print();
    if (!wanted_.json.empty() && !report::write_json(wanted_.json, document())) return 1;
    return good ? 0 : report::complain("gpu_post_bench", "not all that was wanted could be measured");
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{
        "What posting work requests costs, from a GPU's threads and from the CPU. Under softnic, run "
        "softnic with --mode spin: a GPU's doorbell wakes nobody."};
    settings wanted;
    app.add_option("--only", wanted.only, "sections: post, payload, cpu, device; comma-separated")
        ->delimiter(',')
        ->check(CLI::IsMember({"post", "payload", "cpu", "device"}));
    app.add_option("--payload", wanted.payloads, "bytes of a request, comma-separated");
    app.add_option("--milliseconds", wanted.milliseconds, "time of each repeat, about")->check(CLI::Range(1.0, 1000.0));
    app.add_option("--repeats", wanted.repeats, "of which the median counts")->check(CLI::Range(1, 100));
    app.add_option("--gpu", wanted.gpu, "number of the GPU");
    app.add_option("--device", wanted.device, "RDMA device, NAME or NAME:PORT; else the best there is");
    app.add_option("--rounds", wanted.rounds, "requests on the device, each way")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000}));
    app.add_option("--json", wanted.json, "writes the rows to FILE (-: standard output)");
    CLI11_PARSE(app, argc, argv);
    return bench_run(wanted).run();
}
