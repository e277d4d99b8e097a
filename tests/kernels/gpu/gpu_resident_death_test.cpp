// SPDX-License-Identifier: Apache-2.0
// Clients of kernels that are killed, one each second: the others lose nothing. With softnic's faults (`softnic run
// --fault "drop p=0.01"`) and ACCEL_TEST_REQUESTS this is the long run of docs/benchmarks.md.
#include "conformance/peer_process.hpp"
#include "gpu/gpu_resident_rig.hpp"
#include "gpu/requests_wanted.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class gpu_resident_deaths : public gpu_resident_service, public ::testing::WithParamInterface<way> {
  protected:
    [[nodiscard]] way served() const override { return GetParam(); }

    static void add_what_it_tells(peer_process& caller, tally& all) {
        try {
            tally got;
            std::istringstream(caller.line(patience(600s))) >> got.right >> got.wrong >> got.failed;
            all.right += got.right;
            all.wrong += got.wrong;
            all.failed += got.failed;
        } catch (const std::runtime_error& failure) {
            ADD_FAILURE() << failure.what();
        }
    }
    /// Starts a client, and kills it while its calls are in flight.
    void kill_one(std::chrono::microseconds after) {
        try {
            peer_process dying({"client", service_->endpoint(), "8", "300", "stream"});
            EXPECT_EQ(dying.line(patience(20s)), "in_flight");
            std::this_thread::sleep_for(after);
            dying.kill();
        } catch (const std::runtime_error& failure) {
            ADD_FAILURE() << failure.what();
        }
    }
    /// One client a second, until `done`; how many, at least one.
    int kill_clients(const std::atomic<bool>& done) {
        std::minstd_rand random{17};
        int killed = 0;
        do {
            const auto begin = std::chrono::steady_clock::now();
            kill_one(std::chrono::microseconds{random() % 50'000});
            ++killed;
            while (!done && std::chrono::steady_clock::now() < begin + 1s) std::this_thread::sleep_for(10ms);
        } while (!done);
        return killed;
    }
};

TEST_P(gpu_resident_deaths, killed_clients_do_not_disturb_other_clients) {
    serve(kernel_work::echo, 8, 64);
    if (IsSkipped()) return;
    constexpr std::uint64_t processes = 4;
    constexpr std::uint64_t sessions = 4;  // of each
    const std::uint64_t each = requests_wanted(20'000) / (processes * sessions);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::unique_ptr<peer_process>> callers;
    for (std::uint64_t i = 0; i < processes; ++i)
        callers.push_back(std::make_unique<peer_process>(
            std::vector<std::string>{"calls", service_->endpoint(), std::to_string(sessions), std::to_string(each),
                                     "512", std::to_string(i * sessions * each)}));
    std::atomic<bool> done{false};
    int killed = 0;
    std::thread killer([&] { killed = kill_clients(done); });
    tally all;
    for (const auto& caller : callers) add_what_it_tells(*caller, all);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    done = true;
    killer.join();
    EXPECT_EQ(all.right, each * processes * sessions);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 0U);
    callers.clear();
    EXPECT_TRUE(eventually(patience(10s), [&] { return service_->statistics().sessions == 0; }));
    std::cout << all.right << " requests right, " << killed << " clients killed beside them, in " << took.count()
              << " s; " << cpu_used() << '\n';
}

INSTANTIATE_TEST_SUITE_P(by, gpu_resident_deaths, every_way(), [](const auto& row) { return name_of(row.param); });

}  // namespace
}  // namespace accel::tests
