// SPDX-License-Identifier: Apache-2.0
// What looks at a GPU mean, with looks that are made up. Real ones are in tests/kernels/gpu/gpu_fault_test.cpp.
#include "staging/failure_watch.hpp"

#include "core/control/session.hpp"
#include "core/log.hpp"
#include "core/log_sink.hpp"
#include "core/log_writer.hpp"
#include "patience.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using core::failure_judge;
using core::failure_watch;
using core::gpu_sight;

TEST(failure_judge, a_fault_or_half_a_second_of_refused_looks_is_a_failure) {
    EXPECT_EQ(failure_judge::patience * failure_watch::look_interval, 500ms);
    std::mt19937 random(1);
    for (int round = 0; round < 500; ++round) {
        failure_judge judge;
        int refused = 0;
        for (bool failed = false; !failed;) {
            const auto chance = random() % 40;
            const gpu_sight seen = chance == 0 ? gpu_sight::lost : chance < 8 ? gpu_sight::good : gpu_sight::refused;
            refused = seen == gpu_sight::refused ? refused + 1 : 0;
            failed = seen == gpu_sight::lost || refused == failure_judge::patience;
            ASSERT_EQ(judge.judge(seen), failed) << "after " << refused << " refused looks";
        }
    }
}

TEST(failure_watch, the_watch_reports_a_fault_and_stops_looking) {
    std::atomic<bool> failed{false};
    std::atomic<int> looks{0};
    std::atomic<bool> faulted{false};
    const auto look = [&] {
        ++looks;
        return faulted ? gpu_sight::lost : gpu_sight::good;
    };
    failure_watch watch(look, failed, 1ms);
    EXPECT_TRUE(eventually(patience(5s), [&] { return looks > 3; }));
    EXPECT_FALSE(failed);
    faulted = true;
    EXPECT_TRUE(eventually(patience(5s), [&] { return failed.load(); }));
    const int at_the_end = looks;
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(looks, at_the_end);
}

TEST(failure_watch, the_watch_reports_once_that_a_gpu_refuses_looks) {
    core::logger::set_level(log_level::warning);
    std::mutex mutex;
    std::string lines;
    const core::log_registration sink{[&](log_level, std::string_view line) {
        const std::lock_guard lock(mutex);
        lines.append(line) += '\n';
    }};
    std::atomic<bool> failed{false};
    failure_watch watch([] { return gpu_sight::refused; }, failed, 1ms);
    ASSERT_TRUE(eventually(patience(5s), [&] { return failed.load(); }));
    const auto told = [&] {
        const std::lock_guard lock(mutex);
        return lines.find("a GPU failed 5 checks in a row") != std::string::npos;
    };
    EXPECT_TRUE(eventually(patience(5s), told));
}

TEST(failure_watch, ends_without_waiting_for_the_next_look) {
    std::atomic<bool> failed{false};
    const auto start = std::chrono::steady_clock::now();
    {
        const failure_watch watch([] { return gpu_sight::good; }, failed, 1h);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(10s));
    EXPECT_FALSE(failed);
}

TEST(failure_watch, calls_end_with_a_status_that_a_client_can_act_on) {
    EXPECT_EQ(core::loss_for(status::closed), status::closed);
    EXPECT_EQ(core::loss_for(status::device_lost), status::device_lost);
    EXPECT_EQ(core::loss_for(status::peer_lost), status::peer_lost);
    EXPECT_EQ(core::loss_for(status::protocol_error), status::peer_lost);
}

}  // namespace
}  // namespace accel::tests
