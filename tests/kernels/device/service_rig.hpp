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

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accel::tests {

/// What stands in for a GPU, and how that reaches the device.
struct service_setting {
    bool on_gpu = false;
    gpu_engine engine = gpu_engine::automatic;
};
[[nodiscard]] inline std::string name_of(const service_setting& which) {
    return std::string{which.on_gpu ? "fake_" : "host_"} + (which.engine == gpu_engine::proxy ? "proxy" : "direct");
}
inline auto service_settings() {
    return ::testing::Values(service_setting{false, gpu_engine::direct}, service_setting{false, gpu_engine::proxy},
                             service_setting{true, gpu_engine::direct}, service_setting{true, gpu_engine::proxy});
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

/// What a kernel does with a request. Ends it.
using kernel = std::function<void(const device::service_ref&, const device::exchange_ref&)>;

inline void echo(const device::service_ref& service, const device::exchange_ref& exchange) {
    const std::uint64_t length = std::min(exchange.request_bytes, exchange.response_room);
    std::memcpy(exchange.response, exchange.request, length);
    (void)device::reply(service, exchange, length);
}

/// The same where sessions have one owner each.
using owning_kernel = std::function<void(device::owned_sessions&, const device::exchange_ref&)>;

inline void echo_as_owner(device::owned_sessions& mine, const device::exchange_ref& exchange) {
    const std::uint64_t length = std::min(exchange.request_bytes, exchange.response_room);
    std::memcpy(exchange.response, exchange.request, length);
    (void)device::reply(mine, exchange, length);
}

/// A kernel that serves two models compares the number that a request names.
template <class Service>
void answer_by_target(Service& service, const device::exchange_ref& exchange) {
    constexpr target first = target_of("first");
    constexpr target second = target_of("second");
    if (exchange.target_number == first.number)
        (void)device::fail(service, exchange, status::application_error, 1);
    else if (exchange.target_number == second.number)
        (void)device::fail(service, exchange, status::application_error, 2);
    else
        (void)device::fail(service, exchange, status::not_found, 3);
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
    /// Starts `threads` more kernels.
    void serve(kernel work, int threads = 1) {
        for (int i = 0; i < threads; ++i) kernels_.emplace_back([this, work] { run(work); });
    }
    /// Starts `parts` owners.
    void serve_owned(const owning_kernel& work, std::uint32_t parts = 1) {
        for (std::uint32_t i = 0; i < parts; ++i)
            kernels_.emplace_back([this, work, i, parts] { run_owned(work, i, parts); });
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

    void run(const kernel& work) {
        const device::service_ref mine = service->ref();
        for (;;) {
            device::exchange_ref exchange;
            const status found = device::wait(mine, exchange, look_ns);
            if (found == status::ok)
                work(mine, exchange);
            else if (found != status::timed_out)
                break;
            else
                std::this_thread::sleep_for(100us);
        }
        closed_kernels.fetch_add(1);
    }
    void run_owned(const owning_kernel& work, std::uint32_t part, std::uint32_t parts) {
        device::owned_sessions mine;
        ASSERT_EQ(device::own(service->ref(), part, parts, mine), status::ok);
        for (;;) {
            device::exchange_ref exchange;
            const status found = device::wait(mine, exchange, look_ns);
            if (found == status::ok)
                work(mine, exchange);
            else if (found != status::timed_out)
                break;
            else
                std::this_thread::sleep_for(100us);
        }
        closed_kernels.fetch_add(1);
    }
    std::shared_ptr<fake_accelerator> fake_;
    std::vector<std::thread> kernels_;
};

}  // namespace accel::tests
