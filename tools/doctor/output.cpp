// SPDX-License-Identifier: Apache-2.0
#include "doctor/output.hpp"

#include "report/sizes.hpp"
#include "report/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace accel::doctor {
namespace {

using align = report::table::align;

std::string machine_text(const findings& found) {
    const auto count_text = [](const limit& l) { return l ? std::to_string(*l) : "unlimited"; };
    const auto bytes_text = [](const limit& l) { return l ? report::size_text(*l) : "unlimited"; };
    report::table table{{{"machine", align::left}, {"", align::left}}};
    table.add_row({"accel_transport", found.version});
    const char* curve = found.libzmq_curve ? ", CURVE available" : ", CURVE missing";
    table.add_row({"libzmq", found.libzmq_version.empty() ? "left out of this build" : found.libzmq_version + curve});
    table.add_row({"kernel", found.kernel});
    table.add_row({"cores", std::to_string(found.cores)});
    table.add_row({"memory", report::size_text(found.memory_bytes)});
    table.add_row({"locked memory", bytes_text(found.locked_memory_bytes)});
    table.add_row({"open files", count_text(found.open_files)});
    return table.text();
}

std::string schemes_text(const findings& found) {
    report::table table{{{"scheme", align::left}, {"usable", align::left}, {"why", align::left}}};
    for (const scheme_report& each : found.schemes)
        table.add_row({each.scheme, each.usable ? "yes" : "no", each.reason});
    return table.text();
}

nlohmann::json json_of(const limit& value) {
    return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

void print(const findings& found) {
    fmt::print("{}\n{}\n", machine_text(found), schemes_text(found));
    if (found.auto_ranking.empty())
        fmt::print("auto:// has nothing to choose from: no scheme between hosts is usable\n");
    else
        fmt::print("auto:// tries, best first: {}\n", fmt::join(found.auto_ranking, ", "));
    for (const std::string& sentence : found.advice) fmt::print("note: {}\n", sentence);
}

nlohmann::json json_of(const findings& found) {
    nlohmann::json schemes = nlohmann::json::array();
    for (const scheme_report& each : found.schemes)
        schemes.push_back({{"scheme", each.scheme}, {"usable", each.usable}, {"reason", each.reason}});
    return {{"version", found.version},
            {"machine",
             {{"libzmq", found.libzmq_version},
              {"curve", found.libzmq_curve},
              {"kernel", found.kernel},
              {"cores", found.cores},
              {"memory_bytes", found.memory_bytes},
              {"locked_memory_bytes", json_of(found.locked_memory_bytes)},
              {"open_files", json_of(found.open_files)}}},
            {"schemes", schemes},
            {"auto", found.auto_ranking},
            {"advice", found.advice}};
}

}  // namespace accel::doctor
