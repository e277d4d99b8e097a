// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_metrics.hpp"

#include "core/metrics/metrics_registry.hpp"

#include <gtest/gtest.h>

namespace accel::core {
namespace {

/// Reports of kernels.
class reported : public metrics_source {
  public:
    void add_to(metrics_sums& sums) const override {
        gpu_channel_statistics calls;
        calls.submitted = 10;
        calls.completed = 6;
        calls.ended_early = 3;
        calls.stale = 2;
        calls.quarantined = 1;
        gpu::add_to(sums.kernels, calls);
        calls.completed = 11;  // it was read after `submitted`
        gpu::add_to(sums.kernels, calls);
        gpu_service_statistics requests;
        requests.requests = 9;
        requests.replies = 8;
        requests.expired = 7;
        requests.dropped = 5;
        gpu::add_to(sums.kernels, requests);
        gpu::add_to(sums.kernels, requests);
    }
};

TEST(kernel_metrics, channels_and_services_that_end_leave_their_counters_and_no_gauges) {
    metrics_registry registry;
    const reported source;
    const auto expect = [&](double channels, double in_flight, double quarantined) {
        const metrics_snapshot seen = registry.snapshot();
        EXPECT_EQ(seen.sum("accel_kernel_channels"), channels);
        EXPECT_EQ(seen.sum("accel_kernel_calls_in_flight"), in_flight);
        EXPECT_EQ(seen.sum("accel_kernel_quarantined_slots"), quarantined);
        EXPECT_EQ(seen.sum("accel_kernel_calls_total", {{"outcome", "answered"}}), 17);
        EXPECT_EQ(seen.sum("accel_kernel_calls_total", {{"outcome", "ended_early"}}), 6);
        EXPECT_EQ(seen.sum("accel_kernel_stale_responses_total"), 4);
        EXPECT_EQ(seen.sum("accel_kernel_requests_total"), 18);
        EXPECT_EQ(seen.sum("accel_kernel_replies_total"), 16);
        EXPECT_EQ(seen.sum("accel_kernel_expired_requests_total"), 14);
        EXPECT_EQ(seen.sum("accel_kernel_dropped_requests_total"), 10);
    };
    registry.add(source);
    expect(2, 1, 2);
    registry.remove(source);
    expect(0, 0, 0);
}

}  // namespace
}  // namespace accel::core
