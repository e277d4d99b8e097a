// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/number_table.hpp"

#include <accel_transport/device/service.hpp>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

constexpr std::uint32_t most = 50;

/// As the device code looks.
struct looked_up {
    std::vector<device::detail::session_number> memory{gpu::number_table::size_for(most)};
    gpu::number_table table{memory};
    device::service_ref service;
    looked_up() {
        service.numbers = memory.data();
        service.numbers_mask = static_cast<std::uint32_t>(memory.size() - 1);
    }
    [[nodiscard]] std::uint32_t find(std::uint32_t queue_pair) const {
        return device::detail::find_session(service, queue_pair);
    }
};

TEST(gpu_number_table, the_table_finds_what_a_map_finds) {
    looked_up all;
    std::map<std::uint32_t, std::uint32_t> known;
    std::mt19937 random(7);
    const auto pick = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
    for (std::uint32_t i = 0; i < 20'000; ++i) {
        // Few places to begin at, so that many entries stand elsewhere, and some past the end.
        const std::uint32_t number = 1 + pick(12) * 64 + pick(5) * 31;
        if (known.contains(number)) {
            all.table.drop(number);
            known.erase(number);
        } else if (known.size() < most) {
            all.table.put(number, i);
            known[number] = i;
        }
        for (std::uint32_t seen = 1; seen < 900; seen += 1 + pick(40)) {
            const auto there = known.find(seen);
            ASSERT_EQ(all.find(seen), there == known.end() ? device::detail::no_session : there->second) << i;
        }
    }
    for (const auto& [number, session] : known) EXPECT_EQ(all.find(number), session);
}

TEST(gpu_number_table, lookups_succeed_while_another_thread_adds) {
    looked_up all;
    all.table.put(1, 1'000);
    std::atomic<bool> done{false};
    std::thread adds([&] {
        for (std::uint32_t i = 1; i < most; ++i) all.table.put(1 + i * 128, i);
        done = true;
    });
    std::uint32_t looks = 0;
    while (!done || looks == 0) {
        EXPECT_EQ(all.find(1), 1'000U);
        const std::uint32_t last = all.find(1 + (most - 1) * 128);
        EXPECT_TRUE(last == device::detail::no_session || last == most - 1) << last;
        ++looks;
    }
    adds.join();
    for (std::uint32_t i = 1; i < most; ++i) EXPECT_EQ(all.find(1 + i * 128), i);
}

}  // namespace
}  // namespace accel::tests
