// SPDX-License-Identifier: Apache-2.0
#include "digits/demo_run.hpp"

#include "report/child_process.hpp"
#include "report/cpu_time.hpp"
#include "report/percentiles.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace accel::examples::digits {
namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using report::child_process;

/// CPU time that a server spent while its client measured.
class server_meter {
  public:
    explicit server_meter(pid_t server) noexcept : server_(server) {}
    void start() noexcept { start_ = now(); }
    void stop() noexcept { spent_ = now() - start_; }
    [[nodiscard]] std::chrono::nanoseconds spent() const noexcept { return spent_; }

  private:
    [[nodiscard]] std::chrono::nanoseconds now() const noexcept {
        return server_ > 0 ? report::cpu_time_of(server_).value_or(0ns) : 0ns;
    }
    pid_t server_;
    std::chrono::nanoseconds start_{};
    std::chrono::nanoseconds spent_{};
};

/// Follows a digits_client to the end of its measurement. False where it stopped making progress.
bool follow(child_process& client, server_meter& server, const std::function<void(std::uint64_t)>& progress,
            clock::duration patience) {
    std::uint64_t answered = 0;
    auto last_progress = clock::now();
    while (const auto line = client.read_line(10s)) {
        if (*line == "started") server.start();
        if (*line == "finished") {
            server.stop();
            return true;
        }
        if (!line->starts_with("progress ")) continue;
        const std::uint64_t now = std::strtoull(line->c_str() + std::size("progress"), nullptr, 10);
        if (now != answered) last_progress = clock::now();
        answered = now;
        progress(answered);
        if (clock::now() - last_progress > patience) return false;
    }
    return false;
}

std::optional<digits_row> read_row(const std::string& path) {
    try {
        std::ifstream file(path);
        return from_json(nlohmann::json::parse(file));
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

}  // namespace

demo_result demo_run::nothing(input_form form) const {
    demo_result result;
    result.row.scheme = scheme_;
    result.row.input = to_string(form);
    result.row.memory = plan_.memory;
    result.row.clients = plan_.clients;
    return result;
}

std::vector<demo_result> demo_run::run(const demo_watcher& watcher) {
    constexpr input_form forms[] = {input_form::raw, input_form::tensor};
    std::vector<demo_result> results;
    const auto run_both = [&](const std::string& uri, pid_t server) {
        for (const input_form form : forms) {
            results.push_back(run_client(form, uri, server, watcher));
            watcher.finished(results.back());
        }
    };
    if (scheme_ == "local") {
        run_both("local://digits", -1);
        return results;
    }
    const std::string listen =
        scheme_ == "shm" ? fmt::format("shm://digits-{}", ::getpid()) : fmt::format("{}://{}:0", scheme_, plan_.host);
    auto server = child_process::start(
        {report::program_path("digits_server"), listen + keys_.server_options(), "--memory", plan_.memory});
    const auto endpoint = server ? server->wait_for("serving ", 20s) : std::nullopt;
    if (!endpoint) {
        for (const input_form form : forms) {
            results.push_back(nothing(form));
            results.back().failure = fmt::format("the server did not start on {}", listen);
            watcher.finished(results.back());
        }
        return results;
    }
    run_both(*endpoint + keys_.client_options(), server->id());
    if (const int status = server->stop(10s); status != 0)
        results.back().failure += fmt::format("the server ended with status {}", status);
    return results;
}

demo_result demo_run::run_client(input_form form, const std::string& uri, int server_process,
                                 const demo_watcher& watcher) {
    demo_result result = nothing(form);
    const std::string output = keys_.folder() + "/result.json";
    std::remove(output.c_str());
    std::vector<std::string> command{report::program_path("digits_client"),
                                     uri,
                                     "--progress",
                                     "--clients",
                                     std::to_string(plan_.clients),
                                     "--requests",
                                     std::to_string(plan_.requests),
                                     "--input",
                                     std::string{to_string(form)},
                                     "--json",
                                     output};
    if (server_process < 0) command.insert(command.end(), {"--serve-here", "--memory", plan_.memory});
    auto client = child_process::start(command);
    if (!client) {
        result.failure = client.error().message;
        return result;
    }
    server_meter server{server_process};
    if (!follow(
            *client, server, [&](std::uint64_t n) { watcher.progress(form, n); }, plan_.patience)) {
        const int status = client->stop(1s);
        result.failure = fmt::format("the client stopped before its end (status {})", status);
        return result;
    }
    const auto status = client->wait(20s);
    const auto row = read_row(output);
    if (row) {
        result.row = *row;
        result.row.memory = plan_.memory;
        const auto answered = static_cast<double>(std::max<std::uint64_t>(row->requests, 1));
        result.row.cpu_us_per_request += report::microseconds(server.spent()) / answered;
    }
    if (!row || status != 0) result.failure = fmt::format("the client ended with status {}", status.value_or(-1));
    return result;
}

bool is_good(const demo_result& result, const demo_plan& plan) noexcept {
    const std::uint64_t expected = std::uint64_t{plan.clients} * plan.requests;
    return result.failure.empty() && result.row.requests == expected && result.row.correct * 100 >= expected * 97;
}

}  // namespace accel::examples::digits
