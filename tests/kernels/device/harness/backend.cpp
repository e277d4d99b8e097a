// SPDX-License-Identifier: Apache-2.0
#include "conformance/gpu_harness.hpp"
#include "core/region_state.hpp"
#include "core/registry.hpp"
#include "device/harness/poller.hpp"
#include "kernels/kernel_host.hpp"
#include "verbs/device_cache.hpp"
#include "verbs/domain_list.hpp"

#include <utility>

namespace accel::tests {
namespace {

class harness_backend final : public core::backend, public gpu::kernel_backend {
  public:
    explicit harness_backend(core::context_state& context)
        : real_(gpu::make_backend(context, rdma::make_backend(context, {.name = "gpu"}))) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return real_->scheme(); }
    [[nodiscard]] std::string_view wire() const noexcept override { return real_->wire(); }
    [[nodiscard]] bool writes_lent_memory() const noexcept override { return real_->writes_lent_memory(); }
    [[nodiscard]] core::probe_result probe() override { return real_->probe(); }
    [[nodiscard]] core::probe_result examine() override { return real_->examine(); }
    void unregister_region(const core::region_state& region) noexcept override {
        real_->unregister_region(region);
        domains_->forget(region.id(), {region.data(), region.size()});
    }
    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        if (options.role == core::link_role::client) return real_->open_poller(options);
        auto on = devices_.open(options.verbs, options.host);
        if (!on) return on.error();
        return harness_poller::open(std::move(*on), domains_, options);
    }

    [[nodiscard]] result<std::unique_ptr<gpu::kernel_service>> open_service(const core::poller_options& options,
                                                                            const gpu::kernel_setup& kernels) override {
        return dynamic_cast<gpu::kernel_backend&>(*real_).open_service(options, kernels);
    }
    [[nodiscard]] result<std::unique_ptr<gpu::kernel_client>> open_client(const core::poller_options& options,
                                                                          const gpu::kernel_setup& kernels) override {
        return dynamic_cast<gpu::kernel_backend&>(*real_).open_client(options, kernels);
    }

  private:
    std::unique_ptr<core::backend> real_;
    std::shared_ptr<verbs::domain_list> domains_ = std::make_shared<verbs::domain_list>();
    verbs::device_cache devices_;
};

}  // namespace

std::unique_ptr<core::backend> make_harness_backend(core::context_state& context) {
    return std::make_unique<harness_backend>(context);
}

}  // namespace accel::tests
