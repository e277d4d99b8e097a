// SPDX-License-Identifier: Apache-2.0
#include "core/context_state.hpp"
#include "core/registry.hpp"
#include "kernels/channel/client_poller.hpp"
#include "kernels/engine_choice.hpp"
#include "kernels/proxy/proxy_threads.hpp"
#include "kernels/service/service_poller.hpp"

#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

/// Kernels at one end of `rdma`. The rdma backend serves ends without kernels.
class gpu_backend final : public core::backend, public kernel_backend {
  public:
    gpu_backend(core::context_state& context, std::unique_ptr<core::backend> rdma)
        : context_(context), rdma_(std::move(rdma)) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return "gpu"; }
    [[nodiscard]] std::string_view wire() const noexcept override { return rdma_->wire(); }
    [[nodiscard]] bool writes_lent_memory() const noexcept override { return rdma_->writes_lent_memory(); }
    [[nodiscard]] core::probe_result probe() override;
    [[nodiscard]] core::probe_result examine() override;
    void unregister_region(const core::region_state& region) noexcept override { rdma_->unregister_region(region); }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        return rdma_->open_poller(options);
    }
    [[nodiscard]] result<std::unique_ptr<kernel_service>> open_service(const core::poller_options& options,
                                                                       const kernel_setup& kernels) override {
        return service_poller::open(options, kernels, proxies_);
    }
    [[nodiscard]] result<std::unique_ptr<kernel_client>> open_client(const core::poller_options& options,
                                                                     const kernel_setup& kernels) override {
        return client_poller::open(options, kernels, proxies_);
    }

  private:
    core::context_state& context_;
    std::unique_ptr<core::backend> rdma_;
    std::shared_ptr<proxy_threads> proxies_ = std::make_shared<proxy_threads>();
};

/// Clients and handlers need no GPU.
core::probe_result gpu_backend::probe() {
    core::probe_result out = rdma_->probe();
    if (!out.usable) return out;
    const auto gpu = context_.devices()->open(memory_kind::cuda(0));
    out.reason = gpu ? fmt::format("{}; GPU-resident services run on {}", out.reason, gpu.value()->name())
                     : fmt::format("{}; for clients and handlers only, because this machine has no GPU for kernels: {}",
                                   out.reason, gpu.error().message);
    return out;
}

/// The same, with the engine that a service with default options would have.
core::probe_result gpu_backend::examine() {
    core::probe_result out = probe();
    auto gpu = context_.devices()->open(memory_kind::cuda(0));
    if (!out.usable || !gpu) return out;
    auto chosen = choose_engine({}, gpu_engine::automatic, {}, context_.devices(), *gpu);
    if (!chosen)
        out.reason += fmt::format(", but none can be made: {}", chosen.error().message);
    else if (chosen->engine == gpu_engine::direct)
        out.reason += ", which drives the device's queues itself (engine direct)";
    else
        out.reason += fmt::format(", and a host thread posts for it (engine proxy): {}", chosen->reason);
    return out;
}

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state& context, std::unique_ptr<core::backend> rdma) {
    return std::make_unique<gpu_backend>(context, std::move(rdma));
}

}  // namespace accel::gpu
