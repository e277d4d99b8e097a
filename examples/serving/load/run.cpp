// SPDX-License-Identifier: Apache-2.0
#include "serving/load/run.hpp"

#include "report/meeting_point.hpp"
#include "report/progress_line.hpp"
#include "serving/load/client.hpp"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/prctl.h>

namespace accel::examples::serving {
namespace {

using report::time_now;
using std::chrono::nanoseconds;

/// Between the word to start an open loop and its first call.
constexpr nanoseconds time_to_wake = std::chrono::milliseconds{1};
constexpr nanoseconds between_lines = std::chrono::seconds{1};

/// softnic names the threads of its devices so.
constexpr std::string_view device_threads = "softnic";

/// Of an emulated adapter in this process: its threads, and what calls of ours have done of its work (tools/softnic,
/// "CPU time"). 0: there is none.
nanoseconds emulation_time() {
    using counter = std::uint64_t (*)(const char*);
    static const auto read = reinterpret_cast<counter>(::dlsym(RTLD_DEFAULT, "softnic_counter"));
    return nanoseconds{read == nullptr ? 0 : static_cast<std::int64_t>(read("device_cpu_ns"))};
}

/// Of this process so far.
struct cpu_share {
    report::cpu_times own;  ///< without the device's
    nanoseconds device{};

    static cpu_share now() {
        const report::cpu_times all = report::user_and_kernel_time();
        const report::cpu_times threads = report::time_of_threads(device_threads);
        const nanoseconds of_threads = threads.user + threads.kernel;
        const nanoseconds device = std::max(emulation_time(), of_threads);
        return {{all.user - threads.user - (device - of_threads), all.kernel - threads.kernel}, device};
    }
    /// How much it has grown since; what is known roughly alone is not less than nothing.
    [[nodiscard]] cpu_share since(const cpu_share& before) const {
        const auto grown = [](nanoseconds from, nanoseconds to) { return std::max(to - from, nanoseconds{}); };
        return {{grown(before.own.user, own.user), grown(before.own.kernel, own.kernel)}, device - before.device};
    }
};

/// The clients of one measurement.
class load_team {
  public:
    load_team(context& ctx, const load_settings& chosen, issue_queue* from = nullptr)
        : ctx_(ctx), chosen_(chosen), from_(from), members_(chosen.clients), failures_(chosen.clients) {}

    /// `issue`: what decides on the calls of a team with a queue.
    [[nodiscard]] result<load_outcome> run(const call_issuer& issue = {});

  private:
    void one(std::uint32_t number);
    [[nodiscard]] result<void> prepare(std::uint32_t number);
    void work(load_client& member, nanoseconds start);
    [[nodiscard]] result<void> measure(load_outcome& out, const call_issuer& issue);
    void watch(nanoseconds start);

    context& ctx_;
    const load_settings& chosen_;
    issue_queue* from_;  ///< null: each client decides on its own calls
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
    if (!failed_) work(*members_[number], start);
    done_.come();
}

void load_team::work(load_client& member, nanoseconds start) {
    if (from_ != nullptr)
        member.serve(*from_, answers_);
    else
        member.run(start, answers_);
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

result<void> load_team::measure(load_outcome& out, const call_issuer& issue) {
    const auto gpu = gpu_watch::start(chosen_.gpu);
    const cpu_share before = cpu_share::now();
    const nanoseconds start = time_now() + (chosen_.rate > 0 ? time_to_wake : nanoseconds{});
    ready_.start(start);
    result<void> issued;
    std::jthread issuing;
    if (issue && !failed_) {
        issuing = std::jthread{[&] {
            issued = issue(*from_);
            from_->close();
        }};
    }
    watch(start);
    if (issuing.joinable()) issuing.join();
    out.start = start;
    out.wall = time_now() - start;
    const cpu_share spent = cpu_share::now().since(before);
    out.cpu = spent.own;
    out.device_cpu = spent.device;
    out.resident_bytes = report::resident_bytes();
    if (gpu) out.gpu = gpu->seen();
    return issued;
}

result<load_outcome> load_team::run(const call_issuer& issue) {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < chosen_.clients; ++i) threads.emplace_back([this, i] { one(i); });
    // Each client's connect and warm-up have deadlines.
    while (!ready_.wait_for(chosen_.clients, between_lines)) {
    }
    load_outcome out;
    const result<void> issued = measure(out, issue);
    threads.clear();
    for (const auto& each : failures_)
        if (!each) return each.error();
    if (!issued) return issued.error();
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

result<load_outcome> run_issued(context& ctx, const load_settings& chosen, const call_issuer& issue,
                                std::function<void(std::uint64_t)> answered) {
    issue_queue calls(chosen.clients, std::move(answered));
    auto out = load_team{ctx, chosen, &calls}.run(issue);
    if (out) out->normal.unsent += calls.unsent();
    return out;
}

}  // namespace accel::examples::serving
