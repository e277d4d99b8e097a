// SPDX-License-Identifier: Apache-2.0
#include "comparison.hpp"

#include "placement.hpp"
#include "report/child_process.hpp"
#include "report/percentiles.hpp"
#include "report/sizes.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace accel::bench {
namespace {

using clock = std::chrono::steady_clock;

error broken(const side& which, std::string_view what) {
    return {status::peer_lost, 0, fmt::format("{}: {}", which.name, what)};
}

/// The time of a call of one side in microseconds.
result<double> measure(const side& which, const comparison& what, const effort& how) {
    if (which.measure) return which.measure(what, how);
    if (how.cores != nullptr) how.cores->run_as_server();
    std::vector<std::string> command{report::program_path(), "serve"};
    command.insert(command.end(), which.server_arguments.begin(), which.server_arguments.end());
    auto server = report::child_process::start(command);
    if (how.cores != nullptr) how.cores->run_as_client();
    if (!server) return server.error();
    const auto endpoint = server->wait_for("serving ", std::chrono::seconds{10});
    if (!endpoint) return broken(which, "its server did not start");
    auto client = which.connect(*endpoint, what.size_bytes);
    if (!client) return client.error();

    const auto warm_until = clock::now() + how.longest / 4;
    for (std::size_t i = 0; i < how.max_calls / 4 && clock::now() < warm_until; ++i)
        if (!client.value()->round_trip()) return broken(which, "a call failed while warming up");
    std::vector<double> times;
    times.reserve(how.max_calls);
    const auto begin = clock::now();
    const auto until = begin + how.longest;
    auto start = begin;
    while (times.size() < how.max_calls && start < until) {
        if (!client.value()->round_trip()) return broken(which, "a call failed");
        const auto end = clock::now();
        times.push_back(report::microseconds(end - start));
        start = end;
    }
    client = error{};
    server->stop(std::chrono::seconds{3});
    if (what.in_flight > 1) return report::microseconds(start - begin) / static_cast<double>(times.size());
    return report::median(std::move(times));
}

}  // namespace

result<verdict> compare(const comparison& what, const effort& how) {
    std::vector<double> baselines, subjects, ratios;
    for (std::size_t round = 0; round < how.rounds; ++round) {
        const bool subject_first = round % 2 == 1;
        const auto first = measure(subject_first ? what.subject : what.baseline, what, how);
        if (!first) return first.error();
        const auto second = measure(subject_first ? what.baseline : what.subject, what, how);
        if (!second) return second.error();
        baselines.push_back(subject_first ? second.value() : first.value());
        subjects.push_back(subject_first ? first.value() : second.value());
        ratios.push_back(subjects.back() / baselines.back());
    }
    return verdict{report::median(baselines),
                   report::median(subjects),
                   report::median(ratios),
                   std::ranges::min(ratios),
                   std::ranges::max(ratios),
                   baselines,
                   subjects};
}

}  // namespace accel::bench
