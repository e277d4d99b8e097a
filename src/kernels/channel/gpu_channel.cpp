// SPDX-License-Identifier: Apache-2.0
#include "core/client/connect_attempts.hpp"
#include "core/context_state.hpp"
#include "core/guarded.hpp"
#include "core/internals.hpp"
#include "core/log.hpp"
#include "core/metrics/metrics_registry.hpp"
#include "kernels/channel/kernel_connection.hpp"
#include "kernels/kernel_metrics.hpp"
#include "kernels/options.hpp"
#include "staging/stream_wait.hpp"

#include <accel_transport/device/client.hpp>
#include <accel_transport/gpu_channel.hpp>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

/// The host's end of a channel whose calls come from a GPU.
namespace accel {

struct gpu_channel::state : private core::metrics_source {
    state(core::connect_request wanted, gpu::kernel_connection opened)
        : request(std::move(wanted)),
          made(std::move(opened)),
          kernels(*made.events),
          channel(kernels.channel()),
          engine(made.events->engine()),
          watcher([this] { watch(); }) {
        if (request.context->metrics() != nullptr) request.context->metrics()->add(*this);
    }
    ~state() override { close(); }
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    [[nodiscard]] bool inherited() const noexcept { return request.context->inherited(); }
    /// A thread that sleeps: it tells kernels of the session's end and of the time, and hears of theirs.
    void watch() {
        made.path->activate();
        std::array<core::link_event, 16> events;
        while (!ending) {
            kernels.set_clock_offset(core::nanoseconds{made.session.watch->clock_offset_ns.load()});
            if (made.events->poll(events) > 0) lose(events[0].reason);
            tell_cancelled();
            if (made.session.watch->drains()) go_away();
            const status over = made.session.watch->ended();
            if (over != status::ok) lose(core::loss_for(over));
            (void)made.events->sleep(lost ? -1 : made.session.watch->event_fd(), core::never);
        }
    }
    /// The server hears from the host, as of a host's own calls.
    void tell_cancelled() noexcept {
        std::array<call_id, 16> calls;
        for (std::size_t found = calls.size(); found == calls.size();) {
            found = kernels.take_cancelled(calls);
            if (lost) continue;
            for (std::size_t i = 0; i < found; ++i) core::cancel_call(request, made.session, calls[i]);
        }
    }
    /// Nobody else knows when the last call has ended, so that the session lives until the server or `close` ends it.
    void go_away() noexcept {
        kernels.go_away();
        made.session.watch->heard();
    }
    void lose(status why) {
        if (std::exchange(lost, true)) return;
        if (why != status::closed)
            core::limited_log(request.peer.host).info("{} lost: {}", request.peer.text(), to_string(why));
        if (why == status::closed) kernels.catch_up();  // it says that no handler has seen a call
        end(why);
        core::close_session(request, made.session);
    }
    void end(status why) noexcept {
        status none = status::ok;
        ended.compare_exchange_strong(none, why);
        kernels.end(why);
    }
    [[nodiscard]] status good_or_end() const noexcept {
        if (const status why = ended.load(); why != status::ok) return why;
        if (made.session.watch->drains()) return status::closed;
        const status over = made.session.watch->ended();
        return over == status::ok ? over : core::loss_for(over);
    }
    [[nodiscard]] gpu_channel_failure failure() const noexcept {
        if (mlx5::load_whole(&channel.report->kernel_version) != 0) return {status::unsupported, 0};
        const std::uint32_t told = mlx5::load_whole(&channel.report->failure);
        if (told == 0) return {good_or_end(), 0};
        return {static_cast<status>(told & 0xffffU), static_cast<std::uint8_t>(told >> 16)};
    }
    [[nodiscard]] gpu_channel_statistics statistics() const noexcept {
        const device::detail::channel_report& report = *channel.report;
        return {mlx5::load_whole(&report.submitted), mlx5::load_whole(&report.completed),
                mlx5::load_whole(&report.ended_early), mlx5::load_whole(&report.stale),
                mlx5::load_whole(&report.quarantined)};
    }
    void add_to(core::metrics_sums& sums) const override { gpu::add_to(sums.kernels, statistics()); }
    /// No kernel uses it any more.
    void close() {
        if (closed) return;
        ending = true;
        end(status::closed);
        watcher.join();
        if (auto read = kernels.finish_report(); !read)
            core::limited_log(request.peer.host).warn("gpu: {}", read.error().message);
        if (request.context->metrics() != nullptr) request.context->metrics()->remove(*this);
        (void)made.path->close();
        if (!lost) core::close_session(request, made.session);
        closed = true;
    }

    core::connect_request request;
    gpu::kernel_connection made;
    gpu::kernel_client& kernels;
    device::channel_ref channel;
    gpu::kernel_engine engine;
    core::accelerator_device* gpu = nullptr;
    std::mutex mutex;     ///< of `close`
    bool closed = false;  ///< likewise
    bool lost = false;    ///< of the watcher
    std::atomic<status> ended{status::ok};
    std::atomic<bool> ending{false};
    std::thread watcher;
};

gpu_channel::gpu_channel(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
gpu_channel::gpu_channel(gpu_channel&&) noexcept = default;
gpu_channel& gpu_channel::operator=(gpu_channel&& other) noexcept {
    core::leave_to_parent(state_);
    state_ = std::move(other.state_);
    return *this;
}
gpu_channel::~gpu_channel() {
    core::leave_to_parent(state_);
}

result<gpu_channel> gpu_channel::open(context& ctx, std::string_view uri, const gpu_channel_options& options,
                                      std::uint32_t layout) {
    if (layout != device::detail::layout_version) return gpu::other_version("this program", layout);
    const std::shared_ptr<core::context_state>& context = core::internals::state_of(ctx);
    if (context->inherited()) return core::made_before_fork();
    return core::guarded([&]() -> result<gpu_channel> {
        gpu_channel_options wanted = options;
        gpu::kernel_keys keys(wanted);
        const auto connect = [&](const core::connect_attempts& now) -> result<gpu_channel> {
            auto request = core::resolve_connection(context, now.host(), options, now.time(), &keys);
            if (!request) return request.error();
            core::backend* scheme = context->find_backend(request->peer.scheme);
            if (dynamic_cast<gpu::kernel_backend*>(scheme) == nullptr)
                return error{status::invalid_argument, 0,
                             fmt::format("{}:// has no channels for kernels; connect to gpu://, which reaches servers "
                                         "on gpu, rdma and gdr",
                                         request->peer.scheme)};
            if (request->options.reconnect)
                return error{status::invalid_argument, 0,
                             "a gpu_channel cannot reconnect: leave out reconnect, close a lost gpu_channel and "
                             "connect another one"};
            if (!options.interceptors.empty())
                return error{status::unsupported, 0,
                             "kernels send the calls of a gpu_channel, so no thread can run options.interceptors"};
            if (auto good = gpu::check(wanted.kernels, request->options.verbs); !good) return good.error();
            gpu::kernel_setup kernels{context->devices(), nullptr, 1, {}, request->options.call_timeout,
                                      wanted.kernels};
            kernels.limits = {request->options.slots, request->options.request_bytes, request->options.response_bytes};
            if (wanted.memory != memory_kind::host()) {
                auto opened = context->devices()->open(wanted.memory);
                if (!opened) return opened.error();
                kernels.gpu = *opened;
            }
            auto made = gpu::open_kernel_connection(*request, kernels);
            if (!made) return made.error();
            now.restore(*request);
            auto kept = std::make_unique<state>(std::move(*request), std::move(*made));
            kept->gpu = kernels.gpu;
            return gpu_channel{std::move(kept)};
        };
        auto hosts = core::parse_client_uris(uri);
        if (!hosts) return hosts.error();
        return core::connect_to_any<gpu_channel>(std::move(*hosts), options, connect, &keys);
    });
}

const device::channel_ref& gpu_channel::ref() const noexcept {
    return state_->channel;
}
memory_kind gpu_channel::memory() const noexcept {
    return state_->gpu == nullptr ? memory_kind::host() : state_->gpu->kind();
}
std::size_t gpu_channel::max_request_bytes() const noexcept {
    return state_->request.options.request_bytes;
}
std::size_t gpu_channel::max_response_bytes() const noexcept {
    return state_->request.options.response_bytes;
}
std::uint32_t gpu_channel::slots() const noexcept {
    return state_->request.options.slots;
}
result<target> gpu_channel::resolve(std::string_view name) {
    if (state_->inherited()) return core::made_before_fork();
    return core::resolve_target(state_->request, name);
}
service_sharing gpu_channel::sharing() const noexcept {
    const bool has_owner = state_->channel.exclusive.channel != nullptr;
    return has_owner ? service_sharing::exclusive : service_sharing::shared;
}
gpu_engine gpu_channel::engine() const noexcept {
    return state_->engine.engine;
}
const std::string& gpu_channel::engine_reason() const noexcept {
    return state_->engine.reason;
}
gpu_channel_failure gpu_channel::failure() const noexcept {
    return state_->inherited() ? gpu_channel_failure{status::invalid_state} : state_->failure();
}
gpu_channel_statistics gpu_channel::statistics() const {
    return state_->inherited() ? gpu_channel_statistics{} : state_->statistics();
}

void gpu_channel::request_stop() noexcept {
    if (!state_->inherited()) state_->end(status::closed);
}

status gpu_channel::close(CUstream_st* stream, std::chrono::nanoseconds timeout) {
    if (state_->inherited()) return status::invalid_state;
    request_stop();
    if (state_->gpu != nullptr) {
        const status ended = core::wait_for_end(*state_->gpu, stream, core::deadline_after(timeout));
        if (ended == status::device_lost) close();  // no kernel runs any more
        if (ended != status::ok) return ended;
    }
    close();
    return failure().reason == status::unsupported ? status::unsupported : status::ok;
}

void gpu_channel::close() {
    if (state_->inherited()) return;
    const std::lock_guard lock(state_->mutex);
    state_->close();
}

}  // namespace accel
