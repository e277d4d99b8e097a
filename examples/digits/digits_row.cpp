// SPDX-License-Identifier: Apache-2.0
#include "digits/digits_row.hpp"

#include "report/percentiles.hpp"
#include "report/table.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accel::examples::digits {
namespace {

std::vector<std::chrono::nanoseconds> sorted(const std::vector<timeline>& timelines,
                                             std::chrono::nanoseconds timeline::*what) {
    std::vector<std::chrono::nanoseconds> values;
    values.reserve(timelines.size());
    for (const timeline& each : timelines) values.push_back(each.*what);
    std::ranges::sort(values);
    return values;
}

std::string time_text(double microseconds) {
    return fmt::format("{:.1f}", microseconds);
}

}  // namespace

digits_row row_of(const load_options& options, const load_outcome& outcome) {
    using report::microseconds;
    digits_row row;
    row.scheme = outcome.scheme;
    row.input = to_string(options.form);
    row.clients = options.clients;
    row.requests = outcome.timelines.size();
    row.correct = outcome.correct;
    const auto totals = sorted(outcome.timelines, &timeline::total);
    row.p50_us = microseconds(report::percentile(totals, 50));
    row.p99_us = microseconds(report::percentile(totals, 99));
    for (std::size_t i = 0; i < stages.size(); ++i)
        row.stages_us[i] = microseconds(report::percentile(sorted(outcome.timelines, stages[i].second), 50));
    if (row.requests != 0) {
        const auto answered = static_cast<double>(row.requests);
        row.rate_per_s = answered / std::chrono::duration<double>(outcome.wall).count();
        row.cpu_us_per_request = microseconds(outcome.cpu) / answered;
    }
    return row;
}

nlohmann::json to_json(const digits_row& row) {
    nlohmann::json by_stage;
    for (std::size_t i = 0; i < stages.size(); ++i) by_stage[std::string{stages[i].first}] = row.stages_us[i];
    return {{"scheme", row.scheme},
            {"input", row.input},
            {"memory", row.memory},
            {"clients", row.clients},
            {"requests", row.requests},
            {"correct", row.correct},
            {"p50_us", row.p50_us},
            {"p99_us", row.p99_us},
            {"rate_per_s", row.rate_per_s},
            {"stages_us", by_stage},
            {"cpu_us_per_request", row.cpu_us_per_request}};
}

digits_row from_json(const nlohmann::json& entry) {
    digits_row row;
    entry.at("scheme").get_to(row.scheme);
    entry.at("input").get_to(row.input);
    entry.at("memory").get_to(row.memory);
    entry.at("clients").get_to(row.clients);
    entry.at("requests").get_to(row.requests);
    entry.at("correct").get_to(row.correct);
    entry.at("p50_us").get_to(row.p50_us);
    entry.at("p99_us").get_to(row.p99_us);
    entry.at("rate_per_s").get_to(row.rate_per_s);
    entry.at("cpu_us_per_request").get_to(row.cpu_us_per_request);
    for (std::size_t i = 0; i < stages.size(); ++i)
        entry.at("stages_us").at(std::string{stages[i].first}).get_to(row.stages_us[i]);
    return row;
}

std::string table_text(const std::vector<digits_row>& rows) {
    using align = report::table::align;
    report::table table{{{"scheme", align::left},
                         {"input", align::left},
                         {"memory", align::left},
                         {"requests"},
                         {"correct"},
                         {"p50 us"},
                         {"p99 us"},
                         {"request"},
                         {"queue"},
                         {"copy"},
                         {"preproc."},
                         {"inference"},
                         {"response"},
                         {"CPU us/req"},
                         {"requests/s"}}};
    for (const digits_row& row : rows) {
        std::vector<std::string> cells{row.scheme,
                                       row.input,
                                       row.memory,
                                       std::to_string(row.requests),
                                       std::to_string(row.correct),
                                       time_text(row.p50_us),
                                       time_text(row.p99_us)};
        for (const double stage_us : row.stages_us) cells.push_back(time_text(stage_us));
        cells.push_back(time_text(row.cpu_us_per_request));
        cells.push_back(fmt::format("{:.0f}", row.rate_per_s));
        table.add_row(std::move(cells));
    }
    return table.text();
}

}  // namespace accel::examples::digits
