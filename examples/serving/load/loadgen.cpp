// SPDX-License-Identifier: Apache-2.0
#include "serving/load/loadgen.hpp"

#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <loadgen.h>
#include <query_sample_library.h>
#include <system_under_test.h>
#include <test_settings.h>

namespace accel::examples::serving {
namespace {

/// The clients, as LoadGen sees them.
class clients_under_test final : public mlperf::SystemUnderTest {
  public:
    clients_under_test(std::string name, issue_queue& to) : name_(std::move(name)), to_(to) {}

    const std::string& Name() override { return name_; }
    void IssueQuery(const std::vector<mlperf::QuerySample>& samples) override {
        ids_.clear();
        for (const mlperf::QuerySample& each : samples) ids_.push_back(each.id);
        to_.add(ids_);
    }
    void FlushQueries() override {}

  private:
    std::string name_;
    issue_queue& to_;
    std::vector<std::uint64_t> ids_;
};

/// Each client has its own request, made before: what LoadGen may choose among is one sample.
class one_sample final : public mlperf::QuerySampleLibrary {
  public:
    explicit one_sample(std::string name) : name_(std::move(name)) {}

    const std::string& Name() override { return name_; }
    std::size_t TotalSampleCount() override { return 1; }
    std::size_t PerformanceSampleCount() override { return 1; }
    void LoadSamplesToRam(const std::vector<mlperf::QuerySampleIndex>& /*samples*/) override {}
    void UnloadSamplesFromRam(const std::vector<mlperf::QuerySampleIndex>& /*samples*/) override {}

  private:
    std::string name_;
};

mlperf::TestSettings settings_of(const mlperf_run& run, const load_settings& chosen) {
    mlperf::TestSettings out;
    out.scenario = run.scenario == scenario::offline ? mlperf::TestScenario::Offline : mlperf::TestScenario::Server;
    out.mode =
        run.scenario == scenario::peak ? mlperf::TestMode::FindPeakPerformance : mlperf::TestMode::PerformanceOnly;
    out.server_target_qps = run.rate;
    out.server_target_latency_ns = static_cast<std::uint64_t>(chosen.slo.count());
    out.server_find_peak_qps_decimals_of_precision = 0;
    out.min_query_count = run.calls;
    out.min_duration_ms =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(run.duration).count());
    out.qsl_rng_seed = out.sample_index_rng_seed = out.schedule_rng_seed = chosen.seed;
    return out;
}

mlperf::LogSettings logs_in(const std::string& folder) {
    mlperf::LogSettings out;
    out.log_output.outdir = folder;
    out.enable_trace = false;
    return out;
}

void answer(std::uint64_t id) {
    mlperf::QuerySampleResponse none{id, 0, 0};
    mlperf::QuerySamplesComplete(&none, 1);
}

}  // namespace

bool has_loadgen() noexcept {
    return true;
}

result<load_outcome> run_loadgen(context& ctx, const load_settings& chosen, const mlperf_run& run) {
    std::error_code failed;
    std::filesystem::create_directories(run.folder, failed);
    if (failed) return error{status::system_error, failed.value(), "cannot make the folder " + run.folder};
    const call_issuer issue = [&](issue_queue& to) -> result<void> {
        clients_under_test clients(fmt::format("{} at {}", chosen.model->name, chosen.uris.front()), to);
        one_sample samples(chosen.model->name);
        // No file overrides the settings.
        mlperf::StartTest(&clients, &samples, settings_of(run, chosen), logs_in(run.folder), "");
        if (!mlperf_value(run.folder, "Result is"))
            return error{status::system_error, 0, "LoadGen has not written a result into " + run.folder};
        return {};
    };
    return run_issued(ctx, chosen, issue, answer);
}

}  // namespace accel::examples::serving
