// SPDX-License-Identifier: Apache-2.0
#include "serving/load/mlperf_log.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

constexpr const char* file_name = "mlperf_log_summary.txt";
constexpr double wanted_certainty = 0.99;
constexpr std::string_view rule = "================================================";

/// What the lines say.
struct verdict {
    std::uint64_t calls = 0;
    std::uint64_t late = 0;
    std::uint64_t calls_needed = 0;  ///< for an early end
    bool latency_kept = true;
    bool long_enough = false;
    bool calls_enough = false;
    bool stopping_kept = true;
    [[nodiscard]] bool all() const noexcept { return latency_kept && long_enough && calls_enough && stopping_kept; }
};

double seconds(std::chrono::nanoseconds time) noexcept {
    return std::chrono::duration<double>(time).count();
}

/// From the start until the last call was due.
std::chrono::nanoseconds due_after(const load_outcome& outcome, const measured& all) noexcept {
    return std::max(all.last_due - outcome.start, std::chrono::nanoseconds{1});
}

verdict judge(const mlperf_run& run, const load_outcome& outcome, const measured& all) {
    verdict out;
    out.calls = all.calls() + all.unsent;
    const bool open = run.scenario != scenario::offline;
    out.late = open ? out.calls - all.within_slo : 0;
    out.long_enough = (open ? due_after(outcome, all) : outcome.wall) >= run.duration;
    out.calls_enough = out.calls >= run.calls;
    if (!open) return out;
    out.latency_kept =
        static_cast<double>(out.calls - out.late) >= part_within_slo * static_cast<double>(out.calls) && out.calls > 0;
    out.calls_needed = calls_for_early_stopping(out.late);
    out.stopping_kept = out.calls >= out.calls_needed;
    return out;
}

const char* yes(bool kept) noexcept {
    return kept ? "Yes" : "NO";
}

void add_heading(std::string& out, std::string_view title) {
    out += fmt::format("{0}\n{1}\n{0}\n", rule, title);
}

void add_stopping(std::string& out, const verdict& judged) {
    out += "Early Stopping Result:\n";
    if (judged.stopping_kept) {
        out += " * Run successful.\n";
        return;
    }
    out += fmt::format(
        " * Run unsuccessful.\n * Processed {} queries.\n * Would need to run at least {} more queries,\n with the run "
        "being successful if every additional\n query were under latency.\n",
        judged.calls, judged.calls_needed - judged.calls);
}

void add_recommendations(std::string& out, const verdict& judged) {
    out += "Recommendations:\n";
    if (!judged.latency_kept) out += " * Reduce target QPS to improve latency.\n";
    if (!judged.long_enough) out += " * Increase the target QPS so the loadgen pre-generates more queries.\n";
    if (!judged.calls_enough)
        out +=
            " * The test exited early, before enough queries were issued.\n"
            "   See the detailed log for why this may have occurred.\n";
}

void add_result(std::string& out, const mlperf_run& run, const verdict& judged, double per_second) {
    const bool open = run.scenario != scenario::offline;
    out += open ? fmt::format("Completed samples per second    : {:.2f}\n", per_second)
                : fmt::format("Samples per second: {:g}\n", per_second);
    out += fmt::format("Result is : {}\n", judged.all() ? "VALID" : "INVALID");
    if (open) out += fmt::format("  Performance constraints satisfied : {}\n", yes(judged.latency_kept));
    out += fmt::format("  Min duration satisfied : {}\n  Min queries satisfied : {}\n  Early stopping satisfied: {}\n",
                       yes(judged.long_enough), yes(judged.calls_enough), yes(judged.stopping_kept));
    if (!judged.all()) add_recommendations(out, judged);
    if (open) add_stopping(out, judged);
}

void add_latencies(std::string& out, const report::histogram& total) {
    out += fmt::format("Min latency (ns)                : {}\n", total.min().count());
    out += fmt::format("Max latency (ns)                : {}\n", total.max().count());
    out += fmt::format("Mean latency (ns)               : {:.0f}\n", total.mean_ns());
    for (const double percent : {50.0, 90.0, 95.0, 97.0, 99.0, 99.9})
        out += fmt::format("{:.2f} percentile latency (ns)   : {}\n", percent, total.value_at(percent).count());
}

void add_parameters(std::string& out, const mlperf_run& run, const load_settings& chosen) {
    const bool open = run.scenario != scenario::offline;
    const auto line = [&](std::string_view name, const auto& value) { out += fmt::format("{}{}\n", name, value); };
    line("samples_per_query : ", open ? 1 : run.calls);
    line("target_qps : ", open ? run.rate : 1.0);
    line("target_latency (ns): ", open ? chosen.slo.count() : 0);
    line("max_async_queries : ", open ? 0 : 1);
    line("min_duration (ms): ", std::chrono::duration_cast<std::chrono::milliseconds>(run.duration).count());
    line("max_duration (ms): ", 0);
    line("min_query_count : ", open ? run.calls : 1);
    line("max_query_count : ", 0);
    line("qsl_rng_seed : ", chosen.seed);
    line("sample_index_rng_seed : ", chosen.seed);
    line("schedule_rng_seed : ", chosen.seed);
    for (const char* unused : {"accuracy_log_rng_seed : ", "accuracy_log_probability : ",
                               "accuracy_log_sampling_target : ", "print_timestamps : ", "performance_issue_unique : ",
                               "performance_issue_same : ", "performance_issue_same_index : "})
        line(unused, 0);
    line("performance_sample_count : ", 1);
    line("accuracy_sample_count : ", 1);
}

std::string summary_of(const mlperf_run& run, const load_settings& chosen, const load_outcome& outcome) {
    const measured all = outcome.all();
    const verdict judged = judge(run, outcome, all);
    std::string out;
    add_heading(out, "MLPerf Results Summary");
    out += fmt::format("SUT name : {} over {}\n", chosen.model->name, outcome.scheme);
    out += fmt::format("Scenario : {}\n", run.scenario == scenario::offline ? "Offline" : "Server");
    out += fmt::format("Mode     : {}\n", run.scenario == scenario::peak ? "FindPeakPerformance" : "PerformanceOnly");
    const double answered = static_cast<double>(all.answered);
    add_result(out, run, judged, answered / seconds(outcome.wall));
    out += '\n';
    add_heading(out, "Additional Stats");
    if (run.scenario != scenario::offline)
        out += fmt::format("Scheduled samples per second : {:.2f}\n",
                           static_cast<double>(judged.calls) / seconds(due_after(outcome, all)));
    add_latencies(out, all.stages[0]);
    out += '\n';
    add_heading(out, "Test Parameters Used");
    add_parameters(out, run, chosen);
    out += "\nNo warnings encountered during test.\n";
    const std::uint64_t failed = all.failed() + all.wrong;
    out += failed == 0 ? "\nNo errors encountered during test.\n"
                       : fmt::format("\n{} ERRORS encountered. The first failure: {}\n", failed, all.first_error);
    return out;
}

/// That at most `late` of `calls` are, where each is with the probability of 1 %.
double probability(std::uint64_t calls, std::uint64_t late) {
    const auto n = static_cast<double>(calls);
    double sum = 0;
    for (std::uint64_t i = 0; i <= std::min(calls, late); ++i) {
        const auto k = static_cast<double>(i);
        sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) +
                        k * std::log(1 - part_within_slo) + (n - k) * std::log(part_within_slo));
    }
    return sum;
}

}  // namespace

std::uint64_t calls_for_early_stopping(std::uint64_t late) {
    std::uint64_t low = late;  // too few
    std::uint64_t high = 1000 * (late + 1);
    while (high - low > 1) {
        const std::uint64_t middle = low + (high - low) / 2;
        (probability(middle, late) <= 1 - wanted_certainty ? high : low) = middle;
    }
    return high;
}

result<void> write_mlperf_summary(const mlperf_run& run, const load_settings& chosen, const load_outcome& outcome) {
    std::error_code ignored;
    std::filesystem::create_directories(run.folder, ignored);
    const std::filesystem::path path = std::filesystem::path{run.folder} / file_name;
    std::ofstream file(path);
    file << summary_of(run, chosen, outcome);
    file.close();
    if (!file) return error{status::system_error, 0, "cannot write " + path.string()};
    return {};
}

std::optional<std::string> mlperf_value(const std::string& folder, std::string_view name) {
    std::ifstream file(std::filesystem::path{folder} / file_name);
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const auto trimmed = [](std::string_view text) {
            while (text.starts_with(' ')) text.remove_prefix(1);
            while (text.ends_with(' ')) text.remove_suffix(1);
            return text;
        };
        const std::string_view whole = line;
        if (trimmed(whole.substr(0, colon)) == name) return std::string{trimmed(whole.substr(colon + 1))};
    }
    return std::nullopt;
}

}  // namespace accel::examples::serving
