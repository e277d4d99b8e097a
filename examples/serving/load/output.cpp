// SPDX-License-Identifier: Apache-2.0
#include "serving/load/output.hpp"

#include "report/percentiles.hpp"
#include "report/table.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accel::examples::serving {
namespace {

using report::microseconds;

struct stage_figures {
    double mean, p50, p90, p99, p999, max, cov;
};

stage_figures figures_of(const report::histogram& times) {
    const double mean = times.mean_ns();
    return {mean / 1e3,
            microseconds(times.value_at(50)),
            microseconds(times.value_at(90)),
            microseconds(times.value_at(99)),
            microseconds(times.value_at(99.9)),
            microseconds(times.max()),
            mean > 0 ? times.deviation_ns() / mean : 0};
}

nlohmann::json figures_json(const report::histogram& times) {
    const stage_figures f = figures_of(times);
    return {{"mean", f.mean}, {"p50", f.p50}, {"p90", f.p90}, {"p99", f.p99},
            {"p999", f.p999}, {"max", f.max}, {"cov", f.cov}};
}

/// [percent, us] of every fifth percentile and of the last one.
nlohmann::json distribution_json(const report::histogram& times) {
    nlohmann::json out = nlohmann::json::array();
    for (int percent = 5; percent < 100; percent += 5) out.push_back({percent, microseconds(times.value_at(percent))});
    out.push_back({99, microseconds(times.value_at(99))});
    out.push_back({100, microseconds(times.max())});
    return out;
}

double seconds_of(const load_outcome& outcome) {
    return std::chrono::duration<double>(outcome.wall).count();
}

double per_second(std::uint64_t count, const load_outcome& outcome) {
    const double seconds = seconds_of(outcome);
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double per_call(std::chrono::nanoseconds all, const measured& seen) {
    return seen.calls() == 0 ? 0 : microseconds(all) / static_cast<double>(seen.calls());
}

nlohmann::json class_json(const measured& seen) {
    nlohmann::json errors = nlohmann::json::object();
    for (std::size_t i = 0; i < seen.errors.size(); ++i)
        if (seen.errors[i] > 0) errors[std::string{to_string(static_cast<status>(i))}] = seen.errors[i];
    nlohmann::json out{{"requests", seen.calls()}, {"wrong", seen.wrong}, {"errors", std::move(errors)}};
    for (std::size_t i = 0; i < stage_count; ++i)
        out[std::string{stage_names()[i].name} + "_us"] = figures_json(seen.stages[i]);
    return out;
}

/// The classes that have clients.
std::vector<std::pair<const char*, const measured*>> classes_of(const load_settings& chosen,
                                                                const load_outcome& outcome) {
    std::vector<std::pair<const char*, const measured*>> out;
    if (chosen.priority_clients > 0) out.emplace_back("high", &outcome.high);
    if (chosen.priority_clients < chosen.clients) out.emplace_back("normal", &outcome.normal);
    return out;
}

const char* loop_of(const load_settings& chosen) {
    if (chosen.rate > 0) return "open";
    return chosen.depth > 1 ? "offline" : "closed";
}

void add_open_loop(nlohmann::json& out, const load_settings& chosen, const measured& all) {
    out["wanted_rate"] = chosen.rate;
    out["unsent"] = all.unsent;
    out["sent_late_us"] = figures_json(all.delay);
}

std::string cell(double value) {
    return fmt::format("{:.1f}", value);
}

std::string notes_of(const load_settings& chosen, const load_outcome& outcome) {
    const measured all = outcome.all();
    std::string out =
        fmt::format("{} over {}, {}: {} clients, {} calls in {:.2f} s ({:.0f}/s), {} wrong, {} failed\n",
                    chosen.model->name, outcome.scheme, chosen.raw ? "raw images" : "tensors", chosen.clients,
                    all.calls(), seconds_of(outcome), per_second(all.calls(), outcome), all.wrong, all.failed());
    out += fmt::format("client: CPU {:.1f} us user and {:.1f} us kernel a call, {:.0f} MiB in RAM\n",
                       per_call(outcome.cpu.user, all), per_call(outcome.cpu.kernel, all),
                       static_cast<double>(outcome.resident_bytes) / (1 << 20));
    if (outcome.device_cpu.count() > 0)
        out += fmt::format("the emulated adapter: CPU {:.1f} us a call, not counted above\n",
                           per_call(outcome.device_cpu, all));
    if (chosen.slo.count() > 0)
        out += fmt::format("within {:.1f} ms: {} calls, {:.1f}/s\n", microseconds(chosen.slo) / 1e3, all.within_slo,
                           per_second(all.within_slo, outcome));
    if (chosen.rate > 0)
        out += fmt::format("{:.1f} calls/s were due; sent late by p99 {:.1f} us; {} not sent\n", chosen.rate,
                           microseconds(all.delay.value_at(99)), all.unsent);
    if (!all.first_error.empty()) out += fmt::format("the first failure: {}\n", all.first_error);
    return out;
}

}  // namespace

nlohmann::json load_json(const load_settings& chosen, const load_outcome& outcome) {
    const measured all = outcome.all();
    nlohmann::json out = class_json(all);
    out["model"] = chosen.model->name;
    out["scheme"] = outcome.scheme;
    out["raw"] = chosen.raw;
    out["loop"] = loop_of(chosen);
    out["clients"] = chosen.clients;
    out["depth"] = chosen.depth;
    out["checked"] = chosen.expect != expectation::shape;
    out["warm_up_calls"] = outcome.warmed_up;
    out["seconds"] = seconds_of(outcome);
    out["rate"] = per_second(all.calls(), outcome);
    out["cpu_user_us_per_request"] = per_call(outcome.cpu.user, all);
    out["cpu_kernel_us_per_request"] = per_call(outcome.cpu.kernel, all);
    if (outcome.device_cpu.count() > 0) out["cpu_device_us_per_request"] = per_call(outcome.device_cpu, all);
    out["rss_mib"] = static_cast<double>(outcome.resident_bytes) / (1 << 20);
    out["total_distribution_us"] = distribution_json(all.stages[0]);
    out["inference_distribution_us"] = distribution_json(all.stages[5]);
    if (!all.first_error.empty()) out["first_error"] = all.first_error;
    if (chosen.slo.count() > 0) {
        out["slo_us"] = microseconds(chosen.slo);
        out["within_slo"] = all.within_slo;
        out["goodput"] = per_second(all.within_slo, outcome);
    }
    if (chosen.rate > 0) add_open_loop(out, chosen, all);
    if (outcome.gpu) {
        out["gpu_memory_mib"] = static_cast<double>(outcome.gpu->memory_bytes) / (1 << 20);
        if (outcome.gpu->utilisation) out["gpu_utilisation"] = *outcome.gpu->utilisation;
    }
    if (chosen.priority_clients > 0)
        for (const auto& [name, seen] : classes_of(chosen, outcome)) out["classes"][name] = class_json(*seen);
    return out;
}

std::string load_csv(const load_settings& chosen, const load_outcome& outcome) {
    std::string out =
        "model,scheme,raw,clients,class,requests,wrong,failed,stage,mean_us,p50_us,p90_us,p99_us,p999_us,max_us,cov\n";
    for (const auto& [name, seen] : classes_of(chosen, outcome)) {
        for (std::size_t i = 0; i < stage_count; ++i) {
            const stage_figures f = figures_of(seen->stages[i]);
            out += fmt::format("{},{},{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f}\n",
                               chosen.model->name, outcome.scheme, chosen.raw ? 1 : 0, chosen.clients, name,
                               seen->calls(), seen->wrong, seen->failed(), stage_names()[i].name, f.mean, f.p50, f.p90,
                               f.p99, f.p999, f.max, f.cov);
        }
    }
    return out;
}

std::string load_table(const load_settings& chosen, const load_outcome& outcome) {
    using align = report::table::align;
    report::table table{{{"class", align::left},
                         {"stage", align::left},
                         {"mean us"},
                         {"p50 us"},
                         {"p90 us"},
                         {"p99 us"},
                         {"p99.9 us"},
                         {"max us"},
                         {"CoV"},
                         {"share %"}}};
    for (const auto& [name, seen] : classes_of(chosen, outcome)) {
        const double total = figures_of(seen->stages[0]).mean;
        for (std::size_t i = 0; i < stage_count; ++i) {
            const stage_figures f = figures_of(seen->stages[i]);
            table.add_row({name, stage_names()[i].name, cell(f.mean), cell(f.p50), cell(f.p90), cell(f.p99),
                           cell(f.p999), cell(f.max), fmt::format("{:.2f}", f.cov),
                           total > 0 ? cell(100 * f.mean / total) : "0.0"});
        }
    }
    return table.text() + notes_of(chosen, outcome);
}

}  // namespace accel::examples::serving
