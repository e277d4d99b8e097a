// SPDX-License-Identifier: Apache-2.0
/// Our transports against what they stand on: ratios of medians, measured in one run, in turn.
#include "comparison.hpp"
#include "placement.hpp"
#include "registration.hpp"
#include "report/program.hpp"
#include "report/sizes.hpp"
#include "report/table.hpp"
#include "report/temporary_keys.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

using namespace accel::bench;
constexpr const char* program = "accel_bench";
constexpr std::size_t KiB = 1024;
constexpr std::size_t MiB = 1024 * KiB;
/// Instructions of one call over `local`, both ends together (docs/benchmarks.md).
constexpr double max_local_instructions = 600;
/// What `rdma` adds to a bare ping-pong over verbs, both ends together.
constexpr double max_rdma_instructions = 500;
/// Of rdma, against bare verbs: the time of a round trip at most, bytes in a second at least.
constexpr double max_rdma_latency = 1.15;
constexpr double min_rdma_bandwidth = 0.95;
constexpr std::uint32_t rdma_depth = 8;

struct settings {
    bool quick = false;
    std::size_t rounds = 0;
    bool strict = false;
    bool anywhere = false;
    bool rdma = false;
    std::string only;
    std::string json;
    double local_instructions = 0;
    std::optional<double> rdma_instructions;  ///< fewer than bare verbs: below 0
};

/// On an RDMA device, which may be emulated: softnic run -- accel_bench --rdma, or tools/rxe-vm.
std::vector<comparison> rdma_comparisons() {
    std::vector<comparison> all;
    for (const bool blocks : {false, true}) {
        const std::string options = blocks ? "?insecure=true&poll=block" : "?insecure=true&poll=busy";
        const std::string name = blocks ? "rdma block" : "rdma busy";
        for (const std::size_t size : {std::size_t{64}, 4 * KiB, 64 * KiB})
            all.push_back({bare_verbs(size, 1, blocks), ours(name, "rdma", options, options), size, max_rdma_latency});
        all.push_back({bare_verbs(64 * KiB, rdma_depth, blocks),
                       ours(name + fmt::format(", {} in flight", rdma_depth), "rdma", options, options, rdma_depth),
                       64 * KiB, 1 / min_rdma_bandwidth, rdma_depth});
    }
    return all;
}

/// Of blocking ends, against a bare blocking socket.
double tcp_target(std::size_t size) {
    if (size == 64 || size == 64 * KiB) return 1.05;
    return size < 64 * KiB ? 1.25 : 1.10;
}

std::vector<comparison> all_comparisons(const accel::report::temporary_keys& keys) {
    const std::string insecure = "?insecure=true";
    const std::string block = "?insecure=true&poll=block";
    const std::string busy = "?insecure=true&poll=busy";
    const std::string zerocopy = "?insecure=true&poll=block&zerocopy=true";
    const std::string blocking = "&poll=block";
    std::vector<comparison> all;
    for (const std::size_t size : {std::size_t{64}, 4 * KiB, 64 * KiB, MiB})
        all.push_back({bare_zmq(false), ours("zmq", "zmq", block, block), size, size <= 4 * KiB ? 1.05 : 1.10});
    for (const std::size_t size : {std::size_t{64}, 4 * KiB, 64 * KiB, MiB}) {
        all.push_back({bare_zmq(true),
                       ours("zmq, CURVE", "zmq", keys.server_options() + blocking, keys.client_options() + blocking),
                       size, 1.10});
    }
    for (const std::size_t size : {std::size_t{64}, 4 * KiB, 64 * KiB, MiB, 4 * MiB})
        all.push_back({bare_socket(size), ours("tcp block", "tcp", block, block), size, tcp_target(size)});
    const std::string encrypted = "&encrypt=required&poll=block";
    for (const std::size_t size : {std::size_t{64}, 4 * KiB, 64 * KiB, MiB}) {
        all.push_back({bare_tls(size),
                       ours("tcp, TLS", "tcp", keys.server_options() + encrypted, keys.client_options() + encrypted),
                       size, 1.10});
    }
    all.push_back({bare_socket(64), ours("tcp busy", "tcp", busy, busy), 64, 0.80});
    all.push_back({bare_socket(64), ours("tcp adaptive", "tcp", insecure, insecure), 64, std::nullopt});
    all.push_back({bare_zmq(false), ours("zmq adaptive", "zmq", insecure, insecure), 64, std::nullopt});
    for (const std::size_t size : {64 * KiB, MiB, 4 * MiB}) {
        all.push_back({ours("tcp block", "tcp", block, block),
                       ours("tcp block, MSG_ZEROCOPY", "tcp", zerocopy, zerocopy), size, std::nullopt});
    }
    if (has_ucx_perftest())
        for (const std::size_t size : {std::size_t{64}, MiB})
            all.push_back({ucx_shared_memory(), ours("shm busy", "shm", busy, busy), size, 1.0});
    return all;
}

std::string judgement(double value, std::optional<double> target) {
    if (!target) return "";
    return value <= *target ? "ok" : "MISSED";
}

/// The rows of the table and of the JSON, filled as the run goes.
class report_sheet {
  public:
    explicit report_sheet(bool pinned) { json_["pinned"] = pinned; }
    void add(const comparison& what, const verdict& seen) {
        const std::string said = judgement(seen.ratio, what.target);
        missed_ = missed_ || said == "MISSED";
        table_.add_row({what.subject.name, what.baseline.name, accel::report::size_text(what.size_bytes),
                        fmt::format("{:.1f}", seen.subject_us), fmt::format("{:.1f}", seen.baseline_us),
                        fmt::format("{:.3f}", seen.ratio),
                        fmt::format("{:.2f}-{:.2f}", seen.ratio_low, seen.ratio_high),
                        what.target ? fmt::format("{:.2f}", *what.target) : "", said});
        nlohmann::json entry{{"subject", what.subject.name},
                             {"baseline", what.baseline.name},
                             {"size_bytes", what.size_bytes},
                             {"in_flight", what.in_flight},
                             {"subject_us", seen.subject_us},
                             {"baseline_us", seen.baseline_us},
                             {"ratio", seen.ratio},
                             {"ratio_low", seen.ratio_low},
                             {"ratio_high", seen.ratio_high},
                             {"baseline_rounds_us", seen.baseline_rounds},
                             {"subject_rounds_us", seen.subject_rounds},
                             {"target", nullptr},
                             {"met", nullptr}};
        if (what.target) {
            entry["target"] = *what.target;
            entry["met"] = said == "ok";
        }
        json_["results"].push_back(std::move(entry));
    }
    /// What was counted for a scheme; `what` says of what.
    void add_count(const std::string& scheme, const char* what, double instructions, double target) {
        const std::string said = judgement(instructions, target);
        missed_ = missed_ || said == "MISSED";
        counted_ += fmt::format("{}: {:.0f} {}, both ends (target at most {:.0f}): {}\n", scheme, instructions, what,
                                target, said);
        json_[scheme] = {{"instructions_per_call", instructions}, {"target", target}, {"met", said == "ok"}};
    }
    void add_note(const std::string& text) { counted_ += text; }
    void add_registration(const registration_report& seen) {
        accel::report::table rows{{{"a region of"}, {"first use us"}, {"another slice us"}, {"ibv_reg_mr us"}}};
        for (const registration_cost& each : seen.sizes) {
            rows.add_row({accel::report::size_text(each.size_bytes), fmt::format("{:.1f}", each.first_us),
                          fmt::format("{:.1f}", each.further_us), fmt::format("{:.1f}", each.bare_us)});
            json_["registration"].push_back({{"size_bytes", each.size_bytes},
                                             {"first_use_us", each.first_us},
                                             {"another_slice_us", each.further_us},
                                             {"ibv_reg_mr_us", each.bare_us}});
        }
        const small_regions_cost& small = seen.small;
        registered_ = fmt::format(
            "\n{}{} regions of {} behind each other: first use {:.0f} us, {:.0f} us where a region around "
            "them "
            "was lent before, ibv_reg_mr of each {:.0f} us\n\n",
            rows.text(), small.regions, accel::report::size_text(small.size_bytes), small.alone_us, small.covered_us,
            small.bare_us);
        json_["small_regions"] = {{"regions", small.regions},
                                  {"size_bytes", small.size_bytes},
                                  {"first_use_us", small.alone_us},
                                  {"covered_us", small.covered_us},
                                  {"ibv_reg_mr_us", small.bare_us}};
    }
    [[nodiscard]] std::string text() const { return table_.text() + registered_ + counted_; }
    [[nodiscard]] const nlohmann::json& json() const noexcept { return json_; }
    [[nodiscard]] bool missed() const noexcept { return missed_; }

  private:
    using align = accel::report::table::align;
    accel::report::table table_{{{"subject", align::left},
                                 {"against", align::left},
                                 {"size"},
                                 {"us"},
                                 {"against us"},
                                 {"ratio"},
                                 {"lowest-highest"},
                                 {"target"},
                                 {"", align::left}}};
    std::string registered_;
    std::string counted_;
    nlohmann::json json_{{"results", nlohmann::json::array()}};
    bool missed_ = false;
};

int run(const settings& chosen) {
    const auto keys = accel::report::temporary_keys::make();
    if (!keys) return accel::report::complain(program, keys.error());
    effort how;
    if (chosen.quick) how = {3, 500, std::chrono::milliseconds{100}, nullptr};
    if (chosen.rounds > 0) how.rounds = chosen.rounds;
    const placement cores;
    const bool pinned = !chosen.anywhere && cores.can_pin();
    if (pinned) how.cores = &cores;
    report_sheet sheet{pinned};
    for (const comparison& each : chosen.rdma ? rdma_comparisons() : all_comparisons(keys.value())) {
        const std::string name = each.subject.name + ", " + accel::report::size_text(each.size_bytes);
        if (name.find(chosen.only) == std::string::npos) continue;
        fmt::print(stderr, "{} against {}, {}\n", each.subject.name, each.baseline.name,
                   accel::report::size_text(each.size_bytes));
        const auto seen = compare(each, how);
        if (!seen) return accel::report::complain(program, seen.error());
        sheet.add(each, seen.value());
    }
    if (chosen.rdma && (chosen.only.empty() || chosen.only == "registration")) {
        const auto registered = measure_registration(how.rounds);
        if (!registered) return accel::report::complain(program, registered.error());
        sheet.add_registration(registered.value());
    }
    if (chosen.local_instructions > 0)
        sheet.add_count("local", "instructions a call", chosen.local_instructions, max_local_instructions);
    if (chosen.rdma_instructions)
        sheet.add_count("rdma", "instructions a call more than bare verbs (emulated device)", *chosen.rdma_instructions,
                        max_rdma_instructions);
    if (!chosen.rdma && !has_ucx_perftest())
        sheet.add_note("shm against UCX: not measured, there is no ucx_perftest (Debian: ucx-utils)\n");
    std::FILE* people = chosen.json == "-" ? stderr : stdout;
    fmt::print(people,
               "\n{}Medians of {} rounds, measured in turn; each round: new processes, up to {} calls a side, {}.\n",
               sheet.text(), how.rounds, how.max_calls,
               pinned ? "client and server on cores of their own" : "placed by the scheduler");
    if (!chosen.json.empty() && !accel::report::write_json(chosen.json, sheet.json())) return 1;
    return chosen.strict && sheet.missed() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 2 && std::string_view{argv[1]} == "serve") return serve_side({argv + 2, argv + argc});
    settings chosen;
    CLI::App app{
        "Round trips of accel_transport against bare sockets, bare ZeroMQ and bare verbs, in one run, "
        "measured in "
        "turn."};
    app.footer("Examples:\n  accel_bench --quick\n  accel_bench --only 'tcp block' --json bench.json");
    app.set_version_flag("--version", fmt::format("{} {}", program, accel::report::version_text()));
    app.add_flag("--quick", chosen.quick, "Fewer and shorter rounds: a look, not a figure to quote");
    app.add_option("--rounds", chosen.rounds, "So many rounds of each comparison")->type_name("N");
    app.add_flag("--anywhere", chosen.anywhere, "Let the scheduler place both ends, instead of half of the cores each");
    app.add_flag("--rdma", chosen.rdma, "Only rdma, against bare verbs, on this machine's RDMA device");
    app.add_flag("--strict", chosen.strict, "Exit status 1 where a target is missed");
    app.add_option("--only", chosen.only,
                   "Only rows whose subject and size ('rdma busy, 64 B') hold this text, or 'registration'")
        ->type_name("TEXT");
    app.add_option("--json", chosen.json, "Write the results to FILE (-: standard output)")->type_name("FILE");
    app.add_option("--local-instructions", chosen.local_instructions,
                   "What callgrind_local.sh counted, to be shown beside its target");
    app.add_option("--rdma-instructions", chosen.rdma_instructions, "What callgrind_rdma.sh counted, likewise");
    CLI11_PARSE(app, argc, argv);
    return run(chosen);
}
