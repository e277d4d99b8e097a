#include "backends/gpu/backend.hpp"

#include "backends/gpu/client_poller.hpp"
#include "backends/gpu/engine_choice.hpp"
#include "backends/gpu/hosted_poller.hpp"
#include "backends/gpu/poller.hpp"
#include "core/context_state.hpp"
#include "core/region_state.hpp"
#include "verbs/device_cache.hpp"
#include "verbs/domain_list.hpp"
#include "verbs/rdma_backend.hpp"

#include <utility>

#include <fmt/format.h>

namespace accel::gpu {
namespace {

class gpu_backend final : public core::backend {
  public:
    explicit gpu_backend(core::context_state& context)
        : context_(context),
          client_(verbs::make_rdma_backend(context, {.name = "gpu", .fills_gpus = false})) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return "gpu"; }
    [[nodiscard]] std::string_view wire() const noexcept override { return client_->wire(); }
    [[nodiscard]] bool serves_kernels() const noexcept override { return true; }
    [[nodiscard]] core::probe_result probe() override;
    [[nodiscard]] core::probe_result examine() override;
    void unregister_region(const core::region_state& region) noexcept override {
        client_->unregister_region(region);
        domains_->forget(region.id(), {region.data(), region.size()});
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(
        const core::poller_options& options) override {
        if (options.role == core::link_role::client) {
            return options.resident ? client_poller::open(options) : client_->open_poller(options);
        }
        return options.resident ? resident_poller::open(options) : open_hosted(options);
    }

  private:
    [[nodiscard]] result<std::unique_ptr<core::poller>> open_hosted(const core::poller_options& options);

    core::context_state& context_;
    std::unique_ptr<core::backend> client_;
    std::shared_ptr<verbs::domain_list> domains_ = std::make_shared<verbs::domain_list>();
    verbs::device_cache devices_;
};

/// Clients need no GPU.
core::probe_result gpu_backend::probe() {
    core::probe_result out = client_->probe();
    if (!out.usable) return out;
    const auto gpu = context_.gpus()->open(memory_kind::cuda(0));
    out.reason =
        gpu ? fmt::format("{}; services live on {}", out.reason, gpu.value()->name())
            : fmt::format(
                  "{}; reaches services on GPUs elsewhere and serves by handlers, for none can live here: {}",
                  out.reason, gpu.error().message);
    return out;
}

/// The same, with the engine that a service with nothing but defaults would have.
core::probe_result gpu_backend::examine() {
    core::probe_result out = probe();
    auto gpu = context_.gpus()->open(memory_kind::cuda(0));
    if (!out.usable || !gpu) return out;
    auto chosen = choose_engine({}, {}, context_.gpus(), *gpu);
    if (!chosen) {
        out.reason += fmt::format(", but none can be made: {}", chosen.error().message);
    } else if (chosen->engine == gpu_engine::direct) {
        out.reason += ", which drives the device's queues itself (engine direct)";
    } else {
        out.reason +=
            fmt::format(", and a thread of the host posts for it (engine proxy): {}", chosen->reason);
    }
    return out;
}

/// A worker of the host takes requests: by the engine that it was asked for, or that the device has.
result<std::unique_ptr<core::poller>> gpu_backend::open_hosted(const core::poller_options& options) {
    verbs_options wanted = options.verbs;
    wanted.direct = wanted.direct && wanted.engine != gpu_engine::proxy;
    auto on = devices_.open(wanted, options.host);
    if (!on) return on.error();
    if (wanted.engine == gpu_engine::direct && (*on)->driver() == nullptr) {
        return error{
            status::unsupported, 0,
            fmt::format("gpu: engine=direct: {} has no queues that could be driven", (*on)->describe())};
    }
    return hosted_poller::open(std::move(*on), domains_, options);
}

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state& context) {
    return std::make_unique<gpu_backend>(context);
}

}  // namespace accel::gpu
