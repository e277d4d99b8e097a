// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/internals.hpp"
#include "kernels/kernel_host.hpp"
#include "kernels/service/gpu_service_state.hpp"
#include "kernels/service/kernel_reports.hpp"
#include "staging/stream_wait.hpp"

#include <accel_transport/device/service.hpp>

#include <utility>
#include <vector>

/// The host's end of a GPU-resident service.
namespace accel {

gpu_service::gpu_service(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_service::gpu_service(gpu_service&&) noexcept = default;
gpu_service& gpu_service::operator=(gpu_service&& other) noexcept {
    if (this == &other) return *this;
    core::leave_to_parent(state_);
    stop();
    state_ = std::move(other.state_);
    return *this;
}
gpu_service::~gpu_service() {
    core::leave_to_parent(state_);
    stop();
}

gpu_service_options gpu_service::defaults() {
    gpu_service_options out;
    out.max_sessions = 64;
    out.max_slots = 8;
    out.max_request_bytes = out.max_response_bytes = std::size_t{1} << 20;
    out.max_memory_bytes = std::size_t{64} << 30;
    out.memory = memory_kind::cuda(0);
    return out;
}

result<gpu_service> gpu_service::open(context& ctx, std::string_view uri, const gpu_service_options& options,
                                      std::uint32_t layout) {
    if (layout != device::detail::layout_version) return gpu::other_version("this program", layout);
    const std::shared_ptr<core::context_state>& context = core::internals::state_of(ctx);
    if (context->inherited()) return core::made_before_fork();
    const auto nobody = [](exchange request) { (void)request.fail(status::unsupported); };
    return core::guarded([&]() -> result<gpu_service> {
        auto maker = std::make_unique<gpu::service_sessions>(context->devices(), options);
        auto kept = std::make_unique<state>();
        kept->sessions = maker.get();
        auto made = core::server_core::listen(context, std::vector<std::string>{std::string{uri}}, {{}, nobody},
                                              options, std::move(maker));
        if (!made) return made.error();
        kept->core = std::move(*made);
        kept->engine = kept->kernels().engine();
        return gpu_service{std::move(kept)};
    });
}

result<void> gpu_service::set_targets(const std::vector<std::string>& names) {
    if (state_->inherited()) return core::made_before_fork();
    return state_->core->set_targets(names);
}

const device::service_ref& gpu_service::ref() const noexcept {
    return state_->kernels().service();
}

memory_kind gpu_service::memory() const noexcept {
    const core::accelerator_device* const gpu = state_->core->device();
    return gpu == nullptr ? memory_kind::host() : gpu->kind();
}

gpu_engine gpu_service::engine() const noexcept {
    return state_->engine.engine;
}

const std::string& gpu_service::engine_reason() const noexcept {
    return state_->engine.reason;
}

status gpu_service::failure() const noexcept {
    if (state_->inherited()) return status::invalid_state;
    const core::accelerator_device* const gpu = state_->core->device();
    return gpu == nullptr || gpu->alive() ? status::ok : status::device_lost;
}

std::string gpu_service::endpoint() const {
    return state_->core->endpoints().front();
}

namespace {

gpu_service_statistics statistics_of(const gpu::service_server& server) {
    gpu_service_statistics out;
    const server_statistics seen = server.core->statistics();
    out.sessions = seen.sessions;
    out.sessions_opened = seen.sessions_opened;
    out.sessions_refused = seen.sessions_refused;
    out.sessions_lost = seen.sessions_lost;
    out.cpu_user = seen.cpu_user;
    out.cpu_kernel = seen.cpu_kernel;
    out.cpu_proxy = server.kernels().engine().cpu_time;
    gpu::read_reports(server.kernels().service(), out);
    return out;
}

}  // namespace

gpu_service_statistics gpu_service::statistics() const {
    if (state_->inherited()) return {};
    const std::lock_guard lock(state_->mutex);
    return state_->last ? *state_->last : statistics_of(*state_);
}

void gpu_service::request_stop() noexcept {
    if (state_->inherited()) return;
    const std::lock_guard lock(state_->mutex);
    if (!state_->last) state_->stop_kernels();
}

status gpu_service::stop(CUstream_st* stream, std::chrono::nanoseconds timeout) {
    if (state_->inherited()) return status::invalid_state;
    request_stop();
    if (state_->core->device() != nullptr) {
        const status ended = core::wait_for_end(*state_->core->device(), stream, core::deadline_after(timeout));
        if (ended == status::device_lost) stop();  // no kernel runs any more
        if (ended != status::ok) return ended;
    }
    stop();
    return state_->refused ? status::unsupported : status::ok;
}

void gpu_service::stop() {
    if (state_ == nullptr || state_->inherited()) return;
    request_stop();
    const std::lock_guard lock(state_->mutex);
    if (state_->last) return;
    state_->kernels().kernels_ended();
    state_->refused = mlx5::load_whole(&state_->kernels().service().report->kernel_version) != 0;
    state_->last = statistics_of(*state_);
    state_->core->stop();
}

}  // namespace accel
