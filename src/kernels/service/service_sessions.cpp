// SPDX-License-Identifier: Apache-2.0
#include "kernels/service/service_sessions.hpp"

#include "core/backend.hpp"
#include "kernels/kernel_metrics.hpp"
#include "kernels/service/kernel_reports.hpp"

#include <fmt/format.h>

namespace accel::gpu {

result<std::unique_ptr<core::event_source>> service_sessions::open(core::backend& scheme,
                                                                   const core::poller_options& options,
                                                                   const core::link_geometry& limits,
                                                                   core::accelerator_device* gpu) {
    auto* const able = dynamic_cast<kernel_backend*>(&scheme);
    if (able == nullptr) {
        return error{status::invalid_argument, 0,
                     fmt::format("{}:// has no services on a GPU; listen on gpu://", scheme.scheme())};
    }
    if (auto good = check(wanted_.kernels, options.verbs); !good) return good.error();
    auto opened = able->open_service(options, {gpus_, gpu, options.sessions, limits, {}, wanted_.kernels});
    if (!opened) return opened.error();
    kernels_ = opened->get();
    return std::unique_ptr<core::event_source>(std::move(*opened));
}

result<std::unique_ptr<core::connection>> service_sessions::connect(const core::link_config& config) {
    return kernels_->open_connection(config);
}

void service_sessions::cancel(core::connection& of, call_id which) noexcept {
    kernels_->tell_cancelled(of, which);
}

void service_sessions::add_to(core::metrics_sums& sums) const {
    gpu_service_statistics reported;
    read_reports(kernels_->service(), reported);
    gpu::add_to(sums.kernels, reported);
}

}  // namespace accel::gpu
