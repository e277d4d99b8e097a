// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/kernel_reports.hpp"

#include <accel_transport/device/service.hpp>

namespace accel::gpu {

namespace {

/// `Report`: of the service, or of one session.
template <class Report>
void add(const Report& report, gpu_service_statistics& out) noexcept {
    out.requests += mlx5::load_whole(&report.requests);
    out.replies += mlx5::load_whole(&report.replies);
    out.expired += mlx5::load_whole(&report.expired);
    out.dropped += mlx5::load_whole(&report.dropped);
}

}  // namespace

void read_reports(const device::service_ref& service, gpu_service_statistics& out) noexcept {
    out.requests = out.replies = out.expired = out.dropped = 0;
    if (service.exclusive.sessions == nullptr) return add(*service.report, out);
    // Each owner reports of its own sessions.
    for (std::uint32_t i = 0; i < service.session_count; ++i) add(service.session_reports[i], out);
}

}  // namespace accel::gpu
