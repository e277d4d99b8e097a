// SPDX-License-Identifier: Apache-2.0
#include "perf/load.hpp"

#include "perf/client_run.hpp"
#include "perf/command.hpp"
#include "perf/progress.hpp"
#include "report/cpu_time.hpp"
#include "report/meeting_point.hpp"
#include "report/progress_line.hpp"
#include "report/sizes.hpp"

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>

namespace accel::perf {
namespace {

using std::chrono::nanoseconds;

/// Between the word to start an open loop and its first call.
constexpr nanoseconds time_to_wake = std::chrono::milliseconds{1};

/// Nothing: the server's payloads are in GPU memory, where it cannot write this.
result<std::optional<nanoseconds>> server_cpu(channel& to) {
    submit_options options;
    options.trace_id = pack({.report_cpu = true});
    auto answer = to.call({}, options);
    if (answer.code() == status::unsupported) return std::optional<nanoseconds>{};
    if (!answer) return answer.error();
    server_report report;
    if (answer->response.size() != sizeof report)
        return error{status::protocol_error, 0, "the server does not answer like accel_perf: start accel_perf serve"};
    std::memcpy(&report, answer->response.data(), sizeof report);
    return std::optional{nanoseconds{static_cast<std::int64_t>(report.cpu_ns)}};
}

result<void> check_grant(const channel& to, const load& what) {
    if (what.request_bytes <= to.max_request_bytes() && what.response_bytes <= to.max_response_bytes() &&
        what.depth <= to.slots())
        return {};
    return error{
        status::message_too_large, 0,
        fmt::format("the server grants {} slots, requests of {} and responses of {}: ask for less, "
                    "or raise its max_slots, max_request_bytes and max_response_bytes",
                    to.slots(), report::size_text(to.max_request_bytes()), report::size_text(to.max_response_bytes()))};
}

/// The clients of one measurement.
class team {
  public:
    team(context& ctx, const std::string& uri, const channel_options& options, const load& what)
        : ctx_(ctx), uri_(uri), options_(options), what_(what), members_(what.clients), failures_(what.clients) {}

    [[nodiscard]] result<measurement> run();

  private:
    void one(std::uint32_t number);
    [[nodiscard]] result<void> connect(std::uint32_t number);
    void watch();
    [[nodiscard]] result<void> first_failure() const;

    context& ctx_;
    const std::string& uri_;
    const channel_options& options_;
    const load& what_;
    shared_run all_;
    report::meeting_point ready_;
    report::meeting_point done_;
    nanoseconds start_{};
    std::vector<std::unique_ptr<client_run>> members_;
    std::vector<result<void>> failures_;
};

result<void> team::connect(std::uint32_t number) {
    auto to = channel::connect(ctx_, uri_, options_);
    if (!to) return to.error();
    if (auto good = check_grant(*to, what_); !good) return good;
    members_[number] = std::make_unique<client_run>(std::move(*to), what_, number, all_);
    return members_[number]->warm_up();
}

/// A client's thread.
void team::one(std::uint32_t number) {
    // Sleeps of an open loop end when they should: the usual slack is 50 us.
    if (what_.rate > 0) (void)::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    result<void>& outcome = failures_[number];
    outcome = connect(number);
    if (!outcome) all_.failed = true;
    ready_.come();
    const nanoseconds start = ready_.wait_for_start();
    if (!all_.failed) outcome = members_[number]->run(start);
    if (!outcome) all_.failed = true;
    done_.come();
}

/// Until all are done.
void team::watch() {
    report::progress_line line;
    while (!done_.wait_for(what_.clients, std::chrono::seconds{1}))
        if (line.shown()) line.show(progress_text(uri_, what_, all_.answers, report::time_now() - start_));
}

result<void> team::first_failure() const {
    for (const auto& each : failures_)
        if (!each) return each;
    return {};
}

result<measurement> team::run() {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < what_.clients; ++i) threads.emplace_back([this, i] { one(i); });
    while (!ready_.wait_for(what_.clients, std::chrono::seconds{1})) {
    }
    result<std::optional<nanoseconds>> server_before = std::optional<nanoseconds>{};
    if (!all_.failed) {
        server_before = server_cpu(members_.front()->to());
        if (!server_before) all_.failed = true;
    }
    const nanoseconds cpu_before = report::cpu_time();
    start_ = report::time_now() + (what_.rate > 0 ? time_to_wake : nanoseconds{});
    ready_.start(start_);
    watch();

    measurement seen;
    seen.wall = report::time_now() - start_;
    seen.client_cpu = report::cpu_time() - cpu_before;
    threads.clear();
    if (auto good = first_failure(); !good) return good.error();
    if (!server_before) return server_before.error();
    channel& first = members_.front()->to();
    const auto server_after = server_cpu(first);
    if (!server_after) return server_after.error();
    seen.scheme = first.scheme();
    if (seen.scheme != "local" && *server_before && *server_after) seen.server_cpu = **server_after - **server_before;
    for (const auto& each : members_) each->report(seen);
    return seen;
}

}  // namespace

result<measurement> run_load(context& ctx, const std::string& uri, const channel_options& options, const load& what) {
    return team{ctx, uri, options, what}.run();
}

}  // namespace accel::perf
