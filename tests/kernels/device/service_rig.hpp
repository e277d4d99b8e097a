// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "gpu/fake_graph.hpp"
#include "loopback.hpp"
#include "patience.hpp"
#include "verbs/device.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/device/service.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accel::tests {

inline constexpr service_sharing owned = service_sharing::exclusive;

/// What stands in for a GPU, how that reaches the device, and who serves a session.
struct service_setting {
    bool on_gpu = false;
    gpu_engine engine = gpu_engine::automatic;
    service_sharing sharing = service_sharing::shared;
    queue_location queues = queue_location::automatic;
};
[[nodiscard]] inline std::string name_of(const service_setting& which) {
    std::string out = which.sharing == owned ? "owned_" : "";
    out += which.on_gpu ? "fake_" : "host_";
    out += which.engine == gpu_engine::proxy ? "proxy" : "direct";
    return which.queues == queue_location::gpu ? out + "_devx" : out;
}
inline auto service_settings() {
    return ::testing::Values(service_setting{false, gpu_engine::direct}, service_setting{false, gpu_engine::proxy},
                             service_setting{true, gpu_engine::direct}, service_setting{true, gpu_engine::proxy});
}
/// Of services whose sessions have one owner each.
inline auto owned_service_settings() {
    return ::testing::Values(service_setting{false, gpu_engine::direct, owned},
                             service_setting{true, gpu_engine::direct, owned, queue_location::host},
                             service_setting{true, gpu_engine::direct, owned, queue_location::gpu},
                             service_setting{false, gpu_engine::proxy, owned},
                             service_setting{true, gpu_engine::proxy, owned});
}

/// softnic's device is an mlx5 one, others have no queues that kernels could drive.
[[nodiscard]] inline bool has(gpu_engine engine) {
    if (engine != gpu_engine::direct) return true;
    static const bool direct = [] {
        auto found = verbs::device::open({}, {});
        return found.ok() && (*found)->driver() != nullptr;
    }();
    return direct;
}

/// A request that a kernel has taken, by whichever functions its service has. Ends with `reply` or `fail`.
struct taken_request {
    const device::service_ref* service = nullptr;
    device::owned_sessions* mine = nullptr;  ///< null: sessions have no owner
    device::exchange_ref exchange;

    [[nodiscard]] std::span<const std::byte> request() const { return {exchange.request, exchange.request_bytes}; }
    [[nodiscard]] std::span<std::byte> response() const { return {exchange.response, exchange.response_room}; }
    [[nodiscard]] bool cancelled() const { return device::cancelled(*service, exchange); }
    status reply(std::uint64_t length) const {
        return mine != nullptr ? device::reply(*mine, exchange, length) : device::reply(*service, exchange, length);
    }
    status fail(status reason, std::uint32_t code = 0) const {
        return mine != nullptr ? device::fail(*mine, exchange, reason, code)
                               : device::fail(*service, exchange, reason, code);
    }
    [[nodiscard]] status next_part(std::span<std::byte>& out) const {
        device::part_ref part;
        const status found =
            mine != nullptr ? device::next_part(*mine, exchange, part) : device::next_part(*service, exchange, part);
        out = {part.bytes, part.room};
        return found;
    }
    [[nodiscard]] status send(std::uint64_t length) const {
        return mine != nullptr ? device::send(*mine, exchange, length) : device::send(*service, exchange, length);
    }
};

/// What a kernel does with a request.
using kernel = std::function<void(const taken_request&)>;

/// The same for a kernel that works on several requests at once.
class kernel_work {
  public:
    virtual ~kernel_work() = default;
    virtual void take(const taken_request& request) = 0;
    virtual void go_on() {}  ///< again and again
    virtual void end() {}    ///< its kernel takes no more requests
};
using kernel_maker = std::function<std::unique_ptr<kernel_work>()>;

inline void echo(const taken_request& request) {
    const std::uint64_t length = std::min(request.exchange.request_bytes, request.exchange.response_room);
    std::memcpy(request.exchange.response, request.exchange.request, length);
    (void)request.reply(length);
}

/// A service, threads in its kernels' place, and clients.
class service_rig {
  public:
    /// With a context of its own, or with `shared`, which outlives it.
    explicit service_rig(const service_setting& setting, context* shared = nullptr)
        : server_context(shared == nullptr ? own_context_ : *shared),
          fake_(setting.on_gpu ? std::make_shared<fake_recording_gpus>() : nullptr) {
        const bool on_gpu = setting.on_gpu;
        if (fake_) core::internals::state_of(server_context)->replace_devices(fake_);
        options = gpu_service::defaults();
        options.memory = on_gpu ? memory_kind::cuda(0) : memory_kind::host();
        options.max_sessions = 16;
        options.max_slots = 16;
        options.max_request_bytes = options.max_response_bytes = std::size_t{64} << 10;
        options.security.insecure = true;
        options.peer_timeout = patience(20s);
        options.kernels.engine = setting.engine;
        options.kernels.sharing = setting.sharing;
        options.kernels.queues = setting.queues;
    }
    ~service_rig() { stop(); }
    service_rig(const service_rig&) = delete;
    service_rig& operator=(const service_rig&) = delete;

    [[nodiscard]] result<gpu_service> try_listen() {
        return gpu_service::listen(server_context, "gpu://" + own_loopback() + ":0" + query, options);
    }
    void listen() {
        auto made = try_listen();
        ASSERT_TRUE(made.ok()) << made.error().message;
        service = std::make_unique<gpu_service>(std::move(*made));
    }
    /// Starts `threads` kernels: more of them, or all the owners of the sessions.
    void serve(const kernel& work, std::uint32_t threads = 1) {
        serve_with([work] { return std::make_unique<plain_work>(work); }, threads);
    }
    void serve_with(const kernel_maker& make, std::uint32_t threads = 1) {
        for (std::uint32_t i = 0; i < threads; ++i)
            kernels_.emplace_back([this, make, i, threads] { run(*make(), i, threads); });
    }
    /// The kernels end, though the service goes on. They have no request.
    void end_kernels_alone() {
        kernels_over_ = true;
        for (std::thread& each : kernels_) each.join();
        kernels_.clear();
        kernels_over_ = false;
    }
    void end_kernels() {
        if (service) service->request_stop();
        for (std::thread& each : kernels_) each.join();
        kernels_.clear();
    }
    void stop() {
        end_kernels();
        if (service) service->stop();
    }

    /// By a stand-in for a GPU.
    [[nodiscard]] int pages_pinned() const { return fake_ ? fake_->pins.load() : 0; }
    [[nodiscard]] fake_accelerator& gpus() { return *fake_; }

    [[nodiscard]] result<channel> try_connect(channel_options wanted = small(), const std::string& scheme = "gpu") {
        wanted.security.insecure = true;
        wanted.connect_timeout = patience(20s);
        wanted.peer_timeout = patience(20s);
        const std::string there = service->endpoint();
        return channel::connect(client_context, scheme + there.substr(there.find(':')), wanted);
    }
    [[nodiscard]] channel connect(const channel_options& wanted = small()) {
        auto made = try_connect(wanted);
        if (!made) throw std::runtime_error(made.error().message);
        return std::move(*made);
    }
    [[nodiscard]] static channel_options small() {
        channel_options out;
        out.slots = 8;
        out.request_bytes = out.response_bytes = 4096;
        out.call_timeout = patience(10s);
        return out;
    }

  private:
    context own_context_ = context::open({.metrics = true}).value();

  public:
    context& server_context;
    context client_context = context::open({.metrics = true}).value();
    gpu_service_options options;
    std::string query;  ///< of the URI
    std::unique_ptr<gpu_service> service;
    std::atomic<int> closed_kernels{0};

  private:
    /// A thread in a kernel's place looks for a request that long, then sleeps: there may be two processors in all, and
    /// the emulated device needs one.
    static constexpr std::int64_t look_ns = 50'000;

    class plain_work final : public kernel_work {
      public:
        explicit plain_work(kernel work) : work_(std::move(work)) {}
        void take(const taken_request& request) override { work_(request); }

      private:
        kernel work_;
    };
    void run(kernel_work& work, std::uint32_t part, std::uint32_t parts) {
        const device::service_ref all = service->ref();
        const bool owns = all.exclusive.sessions != nullptr;
        device::owned_sessions mine;
        if (owns) {
            ASSERT_EQ(device::own(all, part, parts, mine), status::ok);
        }
        status found = status::ok;
        while (found != status::closed && !kernels_over_) {
            device::exchange_ref exchange;
            found = owns ? device::wait(mine, exchange, look_ns) : device::wait(all, exchange, look_ns);
            if (found == status::ok)
                work.take({&all, owns ? &mine : nullptr, exchange});
            else if (found == status::timed_out)
                std::this_thread::sleep_for(100us);
            work.go_on();
        }
        work.end();
        if (found == status::closed) ++closed_kernels;
    }
    std::atomic<bool> kernels_over_{false};
    std::shared_ptr<fake_accelerator> fake_;
    std::vector<std::thread> kernels_;
};

}  // namespace accel::tests
