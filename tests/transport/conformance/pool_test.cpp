// SPDX-License-Identifier: Apache-2.0
// A pool over every transport. (What it does beyond that: tests/transport/clients/pool_test.cpp.)
#include "rig.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

class pooling : public on_every_backend {
  protected:
    [[nodiscard]] static channel_pool open(rig& r, const pool_options& limits = {}) {
        auto made = channel_pool::open(r.ctx(), r.uri(), calm_client(), limits);
        EXPECT_TRUE(made) << made.error().message;
        return std::move(made).value();
    }
    /// Calls with bytes that follow from `seed`; how many had their own bytes back.
    [[nodiscard]] static int calls_with(channel_pool& pool, std::uint64_t seed, int count) {
        int good = 0;
        for (int i = 0; i < count; ++i) {
            const std::uint64_t own = seed * 1'000 + static_cast<std::uint64_t>(i);
            std::vector<std::byte> request(mix(own) % 20'000);
            fill(request, own);
            const auto answer = pool.call(request);
            if (!answer) continue;
            good += answer.value().response.size() == request.size() && matches(answer.value().response, own);
        }
        return good;
    }
};

TEST_P(pooling, threads_call_at_once) {
    rig r(GetParam());
    channel_pool pool = open(r);
    const int count = effort(60);
    std::atomic<int> good{0};
    std::vector<std::thread> all;
    for (std::uint64_t i = 0; i < 4; ++i) all.emplace_back([&, i] { good += calls_with(pool, i, count); });
    for (std::thread& each : all) each.join();
    EXPECT_EQ(good, 4 * count);
    EXPECT_LE(pool.statistics().made, 4U);
    EXPECT_EQ(pool.close(patience(5s)), status::ok);
    EXPECT_EQ(pool.call({}).code(), status::closed);
}

TEST_P(pooling, a_channel_is_passed_from_thread_to_thread) {
    rig r(GetParam());
    channel_pool pool = open(r, {.max_channels = 1});
    for (std::uint64_t i = 0; i < 3; ++i) std::thread([&, i] { EXPECT_EQ(calls_with(pool, i, 5), 5); }).join();
    EXPECT_EQ(pool.statistics().made, 1U);
}

TEST_P(pooling, a_pool_takes_a_stopped_server_out) {
    rig r(GetParam());
    channel_pool pool = open(r);
    ASSERT_EQ(calls_with(pool, 1, 1), 1);
    r.served().stop();
    EXPECT_FALSE(pool.call({}));
    EXPECT_FALSE(pool.call({})) << "there is no other";
    EXPECT_EQ(pool.statistics().hosts_out, 1U);
}

ACCEL_INSTANTIATE(pooling, all_backends);

}  // namespace
}  // namespace accel::tests
