// SPDX-License-Identifier: Apache-2.0
#include "serving/load/run.hpp"

#include "report/meeting_point.hpp"
#include "report/progress_line.hpp"
#include "serving/load/client.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>

namespace accel::examples::serving {
namespace {

using report::time_now;
using std::chrono::nanoseconds;

/// Between the word to start an open loop and its first call.
constexpr nanoseconds time_to_wake = std::chrono::milliseconds{1};
constexpr nanoseconds between_lines = std::chrono::seconds{1};

/// The clients of one measurement.
class load_team {
  public:
    load_team(context& ctx, const load_settings& chosen)
        : ctx_(ctx), chosen_(chosen), members_(chosen.clients), failures_(chosen.clients) {}

    [[nodiscard]] result<load_outcome> run();

  private:
    void one(std::uint32_t number);
    [[nodiscard]] result<void> prepare(std::uint32_t number);
    void measure(load_outcome& out);
    void watch(nanoseconds start);

    context& ctx_;
    const load_settings& chosen_;
    std::atomic<std::uint64_t> answers_{0};
    std::atomic<bool> failed_{false};
    report::meeting_point ready_;
    report::meeting_point done_;
    std::vector<std::optional<load_client>> members_;
    std::vector<result<void>> failures_;
};

result<void> load_team::prepare(std::uint32_t number) {
    auto made = load_client::connect(ctx_, chosen_, number);
    if (!made) return made.error();
    members_[number].emplace(std::move(made).value());
    return members_[number]->warm_up();
}

/// A client's thread.
void load_team::one(std::uint32_t number) {
    // Sleeps of an open loop end when they should: the usual slack is 50 us.
    if (chosen_.rate > 0) (void)::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    failures_[number] = prepare(number);
    if (!failures_[number]) failed_ = true;
    ready_.come();
    const nanoseconds start = ready_.wait_for_start();
    if (!failed_) members_[number]->run(start, answers_);
    done_.come();
}

void load_team::watch(nanoseconds start) {
    report::progress_line line;
    while (!done_.wait_for(chosen_.clients, between_lines)) {
        if (!line.shown()) continue;
        const double seconds = std::chrono::duration<double>(time_now() - start).count();
        const auto answers = answers_.load();
        line.show(fmt::format("{}: {} of {} calls, {:.0f}/s", chosen_.model->name, answers,
                              chosen_.requests * chosen_.clients, static_cast<double>(answers) / seconds));
    }
}

void load_team::measure(load_outcome& out) {
    const auto gpu = gpu_watch::start(chosen_.gpu);
    const report::cpu_times before = report::user_and_kernel_time();
    const nanoseconds start = time_now() + (chosen_.rate > 0 ? time_to_wake : nanoseconds{});
    ready_.start(start);
    watch(start);
    out.wall = time_now() - start;
    const report::cpu_times after = report::user_and_kernel_time();
    out.cpu = {after.user - before.user, after.kernel - before.kernel};
    out.resident_bytes = report::resident_bytes();
    if (gpu) out.gpu = gpu->seen();
}

result<load_outcome> load_team::run() {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < chosen_.clients; ++i) threads.emplace_back([this, i] { one(i); });
    // Each client's connect and warm-up have deadlines.
    while (!ready_.wait_for(chosen_.clients, between_lines)) {
    }
    load_outcome out;
    measure(out);
    threads.clear();
    for (const auto& each : failures_)
        if (!each) return each.error();
    for (const auto& each : members_) {
        (each->has_priority() ? out.high : out.normal).add(each->seen());
        out.cpu.user -= std::min(out.cpu.user, each->checking());
        out.warmed_up += each->warmed_up();
    }
    out.scheme = members_.front()->to().scheme();
    return out;
}

}  // namespace

measured load_outcome::all() const {
    measured out = normal;
    out.add(high);
    return out;
}

result<load_outcome> run_load(context& ctx, const load_settings& chosen) {
    return load_team{ctx, chosen}.run();
}

}  // namespace accel::examples::serving
