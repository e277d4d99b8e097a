// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernel_metrics.hpp"

#include <algorithm>

namespace accel::gpu {

void add_to(core::kernel_sums& sums, const gpu_service_statistics& one) noexcept {
    sums.requests += one.requests;
    sums.replies += one.replies;
    sums.expired += one.expired;
    sums.dropped += one.dropped;
}

void add_to(core::kernel_sums& sums, const gpu_channel_statistics& one) noexcept {
    ++sums.channels;
    // The report is read field by field while kernels write it.
    sums.in_flight += one.submitted - std::min(one.submitted, one.completed + one.ended_early);
    sums.answered += one.completed;
    sums.ended_early += one.ended_early;
    sums.stale += one.stale;
    sums.quarantined += one.quarantined;
}

}  // namespace accel::gpu
