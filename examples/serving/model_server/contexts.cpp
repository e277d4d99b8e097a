// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/contexts.hpp"

#include "report/child_process.hpp"
#include "report/program.hpp"
#include "serving/model_server/output.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <ctime>
#include <utility>

#include <fmt/format.h>

namespace accel::examples::serving {
namespace {

using std::chrono::milliseconds;

/// Models from files may take this long to load.
constexpr std::chrono::minutes start_patience{5};
constexpr std::chrono::seconds end_patience{10};

error no_port(std::string_view uri, std::uint64_t port) {
    return {status::invalid_argument, 0,
            fmt::format("'{}' with --contexts needs port {}: choose a lower port, or 0", uri, port)};
}

const char* name_of(execution on) {
    if (on == execution::host) return "host";
    return on == execution::gpu ? "gpu" : "gpu-resident";
}

std::string duration_text(std::chrono::nanoseconds time) {
    return fmt::format("{}us", std::max<std::int64_t>(1, time.count() / 1000));
}

/// Every value of the command line; those at their defaults as well.
std::vector<std::string> shared_arguments(const settings& chosen) {
    std::vector<std::string> out{"--json", "--on", name_of(chosen.on), "--gpu", fmt::format("{}", chosen.gpu)};
    const auto add = [&](const char* option, std::string value) {
        out.emplace_back(option);
        out.push_back(std::move(value));
    };
    for (const std::string& each : chosen.models) add("--model", each);
    for (const std::string& each : chosen.shapes) add("--shapes", each);
    if (chosen.resident_raw) out.emplace_back("--resident-raw");
    add("--graphs", chosen.graphs ? "on" : "off");
    if (chosen.streams.per_client) add("--streams", "client");
    if (chosen.streams.number > 0) add("--streams", fmt::format("{}", chosen.streams.number));
    add("--priority-streams", fmt::format("{}", chosen.priority_streams));
    add("--max-batch", fmt::format("{}", chosen.max_batch));
    add("--max-wait", duration_text(chosen.max_wait));
    add("--warm-up", fmt::format("{}", chosen.warm_up));
    add("--synthetic-gflops", fmt::format("{}", chosen.synthetic.gflops_per_second));
    add("--synthetic-pace", chosen.synthetic.pace == synthetic_pace::busy ? "busy" : "wait");
    return out;
}

result<report::child_process> start(const settings& chosen, std::uint32_t index) {
    auto arguments = arguments_of_context(chosen, index);
    if (!arguments) return arguments.error();
    arguments->insert(arguments->begin(), report::program_path());
    return report::child_process::start(*arguments);
}

result<ready_line> wait_until_ready(report::child_process& child, std::uint32_t index) {
    while (const auto line = child.read_line(start_patience))
        if (auto ready = read_ready(*line)) return std::move(*ready);
    return error{status::system_error, 0, fmt::format("context {} did not start; its own log line says why", index)};
}

sigset_t awaited_signals() {
    sigset_t out;
    sigemptyset(&out);
    for (const int each : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&out, each);
    return out;
}

void signal_all(const std::vector<report::child_process>& children, int which) {
    for (const report::child_process& each : children)
        if (each.id() > 0) (void)::kill(each.id(), which);
}

/// Waits for a signal to end or the death of a child; its index, or nothing. All children get SIGHUP as well.
std::optional<std::size_t> wait_for_end(std::vector<report::child_process>& children) {
    const sigset_t signals = awaited_signals();
    constexpr timespec pause{0, 50'000'000};
    while (true) {
        const int which = sigtimedwait(&signals, nullptr, &pause);
        if (which == SIGHUP) signal_all(children, which);
        if (which > 0 && which != SIGHUP) return std::nullopt;
        for (std::size_t i = 0; i < children.size(); ++i)
            if (children[i].wait(milliseconds{0})) return i;
    }
}

/// Asks all to end at once, so that they drain beside each other.
int end_all(std::vector<report::child_process>& children, summary& sum) {
    int worst = 0;
    signal_all(children, SIGTERM);
    for (report::child_process& each : children) {
        while (const auto line = each.read_line(end_patience))
            if (const auto seen = read_summary(*line)) add_to(sum, *seen);
        worst = std::max(worst, each.stop(end_patience));
    }
    return worst;
}

}  // namespace

std::uint32_t port_stride(const std::vector<std::string>& uris) {
    return std::ranges::any_of(uris, [](const std::string& each) { return each.starts_with("zmq:"); }) ? 2 : 1;
}

result<std::string> uri_of_context(std::string_view uri, std::uint32_t index, std::uint32_t stride) {
    const std::size_t query = std::min(uri.find('?'), uri.size());
    const std::string_view place = uri.substr(0, query);
    const std::size_t host = place.find("://");
    const std::size_t colon = place.rfind(':');
    if (host == std::string_view::npos || colon == host) return fmt::format("{}-{}{}", place, index, uri.substr(query));
    const std::string_view digits = place.substr(colon + 1);
    std::uint64_t port = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (failed != std::errc{} || end != digits.data() + digits.size() || port == 0) return std::string{uri};
    port += std::uint64_t{index} * stride;
    if (port > 65'535) return no_port(uri, port);
    return fmt::format("{}{}{}", place.substr(0, colon + 1), port, uri.substr(query));
}

result<std::vector<std::string>> arguments_of_context(const settings& chosen, std::uint32_t index) {
    std::vector<std::string> out;
    for (const std::string& each : chosen.uris) {
        auto own = uri_of_context(each, index, port_stride(chosen.uris));
        if (!own) return own.error();
        out.push_back(std::move(*own));
    }
    if (!chosen.metrics.empty()) {
        auto own = uri_of_context("http://" + chosen.metrics, index, 1);
        if (!own) return own.error();
        out.insert(out.end(), {"--metrics", own->substr(std::string_view{"http://"}.size())});
    }
    const auto shared = shared_arguments(chosen);
    out.insert(out.end(), shared.begin(), shared.end());
    return out;
}

int run_contexts(const settings& chosen) {
    std::vector<report::child_process> children;
    for (std::uint32_t i = 0; i < chosen.contexts; ++i) {
        auto child = start(chosen, i);
        if (!child) return report::complain(program_name, child.error());
        children.push_back(std::move(*child));
    }
    ready_line all;
    for (std::uint32_t i = 0; i < chosen.contexts; ++i) {
        auto ready = wait_until_ready(children[i], i);
        if (!ready) return report::complain(program_name, ready.error());
        all.endpoints.insert(all.endpoints.end(), ready->endpoints.begin(), ready->endpoints.end());
        all.models = ready->models;
    }
    print_ready(chosen.json, all.endpoints, all.models);
    const auto dead = wait_for_end(children);
    summary sum;
    const int worst = end_all(children, sum);
    print_summary(chosen.json, sum);
    if (dead)
        return report::complain(program_name, fmt::format("context {} ended by itself with status {}; all others were "
                                                          "ended",
                                                          *dead, children[*dead].wait(milliseconds{0}).value_or(1)));
    return worst == 0 ? 0 : report::complain(program_name, "a context failed at its end; its own log line says why");
}

}  // namespace accel::examples::serving
