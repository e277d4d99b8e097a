// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/output.hpp"

#include "report/table.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace accel::examples::serving {
namespace {

using nlohmann::json;

double seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}
std::chrono::nanoseconds from_seconds(double time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(time));
}
std::chrono::nanoseconds time_of(const timeval& time) {
    return std::chrono::seconds{time.tv_sec} + std::chrono::microseconds{time.tv_usec};
}

json to_json(const model_registry::row& one) {
    const batch_statistics& batches = one.seen.batches;
    return {{"name", one.name},
            {"requests", one.seen.requests},
            {"errors", one.seen.errors},
            {"batches", batches.batches},
            {"batched_requests", batches.requests},
            {"replays", one.seen.replays.replays},
            {"replay_copies", one.seen.replays.copies},
            {"replay_copied_bytes", one.seen.replays.copied_bytes}};
}

model_registry::row row_of(const json& one) {
    model_registry::row out{one.at("name"), {}};
    out.seen.requests = one.at("requests");
    out.seen.errors = one.at("errors");
    out.seen.batches.batches = one.at("batches");
    out.seen.batches.requests = one.at("batched_requests");
    out.seen.replays = {one.at("replays"), one.at("replay_copies"), one.at("replay_copied_bytes")};
    return out;
}

json to_json(const summary& seen) {
    json models = json::array();
    for (const model_registry::row& each : seen.models) models.push_back(to_json(each));
    return {{"requests", seen.requests},
            {"errors", seen.errors},
            {"cpu_user_s", seconds(seen.cpu_user)},
            {"cpu_kernel_s", seconds(seen.cpu_kernel)},
            {"rss_mib", seen.rss_mib},
            {"models", models}};
}

std::string mean_batch(const batch_statistics& batches) {
    if (batches.batches == 0) return "-";
    return fmt::format("{:.1f}", static_cast<double>(batches.requests) / static_cast<double>(batches.batches));
}

void print_line(const json& document) {
    fmt::print("{}\n", document.dump());
    std::fflush(stdout);
}

}  // namespace

void add_process_to(summary& out) {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    out.cpu_user += time_of(usage.ru_utime);
    out.cpu_kernel += time_of(usage.ru_stime);
    out.rss_mib += static_cast<double>(usage.ru_maxrss) / 1024;
}

void add_to(summary& out, const summary& more) {
    out.requests += more.requests;
    out.errors += more.errors;
    out.cpu_user += more.cpu_user;
    out.cpu_kernel += more.cpu_kernel;
    out.rss_mib += more.rss_mib;
    for (const model_registry::row& each : more.models) {
        const auto same = std::ranges::find(out.models, each.name, &model_registry::row::name);
        if (same == out.models.end())
            out.models.push_back(each);
        else
            add(same->seen, each.seen);
    }
}

void print_ready(bool as_json, const std::vector<std::string>& endpoints, const std::vector<std::string>& models) {
    if (as_json) return print_line({{"ready", true}, {"endpoints", endpoints}, {"models", models}});
    for (const std::string& each : endpoints) fmt::print("serving {} at {}\n", fmt::join(models, ", "), each);
    std::fflush(stdout);
}

void print_summary(bool as_json, const summary& seen) {
    if (as_json) return print_line(to_json(seen));
    using align = report::table::align;
    report::table table(
        {{"model", align::left}, {"requests"}, {"errors"}, {"batches"}, {"mean batch"}, {"replays"}, {"copies"}});
    for (const model_registry::row& each : seen.models) {
        table.add_row({each.name, fmt::format("{}", each.seen.requests), fmt::format("{}", each.seen.errors),
                       fmt::format("{}", each.seen.batches.batches), mean_batch(each.seen.batches),
                       fmt::format("{}", each.seen.replays.replays), fmt::format("{}", each.seen.replays.copies)});
    }
    fmt::print("{}{} requests, {} errors; CPU {:.2f} s user, {:.2f} s kernel; {:.0f} MiB\n", table.text(),
               seen.requests, seen.errors, seconds(seen.cpu_user), seconds(seen.cpu_kernel), seen.rss_mib);
    std::fflush(stdout);
}

std::optional<ready_line> read_ready(const std::string& line) {
    const json read = json::parse(line, nullptr, false);
    if (!read.is_object() || !read.contains("endpoints") || !read.contains("models")) return std::nullopt;
    return ready_line{read.at("endpoints"), read.at("models")};
}

std::optional<summary> read_summary(const std::string& line) {
    const json read = json::parse(line, nullptr, false);
    if (!read.is_object() || !read.contains("requests") || !read.contains("models")) return std::nullopt;
    summary out;
    out.requests = read.at("requests");
    out.errors = read.at("errors");
    out.cpu_user = from_seconds(read.at("cpu_user_s"));
    out.cpu_kernel = from_seconds(read.at("cpu_kernel_s"));
    out.rss_mib = read.at("rss_mib");
    for (const json& each : read.at("models")) out.models.push_back(row_of(each));
    return out;
}

}  // namespace accel::examples::serving
