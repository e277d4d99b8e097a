// SPDX-License-Identifier: Apache-2.0
#include "backends/rdma/poller.hpp"
#include "core/context_state.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/region_state.hpp"
#include "core/registry.hpp"
#include "core/slot_memory.hpp"
#include "verbs/device_cache.hpp"
#include "verbs/domain_list.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace accel::rdma {
namespace {

/// Registers a little memory for trial: where the limit of locked memory is too low, nothing else works either.
result<void> try_to_register(const std::shared_ptr<verbs::device>& on) {
    auto trial = verbs::domain::create(on);
    if (!trial) return trial.error();
    // A mapping has whole pages: a child that is forked just now may not have them. And it is given back: each attempt
    // to connect comes here, and glibc's heap does not use the holes that freed aligned blocks leave.
    auto memory = core::slot_memory::create(1, std::size_t{256} << 10);
    if (!memory) return memory.error();
    auto registered =
        (*trial)->register_memory({(*memory)->base(), (*memory)->size_bytes()}, verbs::access::peer_writes);
    if (!registered) return registered.error();
    return {};
}

class rdma_backend final : public core::backend {
  public:
    rdma_backend(core::context_state& context, const scheme_traits& scheme) : context_(context), scheme_(scheme) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return scheme_.name; }
    [[nodiscard]] std::string_view wire() const noexcept override { return "rdma"; }
    [[nodiscard]] bool fills_devices() const noexcept override { return scheme_.fills_devices; }
    [[nodiscard]] bool writes_lent_memory() const noexcept override { return true; }

    [[nodiscard]] core::probe_result probe() override {
        auto found = devices_.open({}, {});
        // A lack of descriptors is reported when somebody connects or listens.
        if (!found) return {core::is_shortage(found.error().native), found.error().message};
        if (auto registered = try_to_register(*found); !registered)
            return {false, fmt::format("{}: {}", (*found)->name(), registered.error().message)};
        if (scheme_.fills_devices) return probe_gpu(*found);
        return {true, (*found)->describe() + "; payloads are not encrypted"};
    }

    void unregister_region(const core::region_state& region) noexcept override {
        domains_->forget(region.id(), {region.data(), region.size()});
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        auto on = devices_.open(options.verbs, options.host);
        if (!on) return on.error();
        return rdma_poller::open(std::move(*on), domains_, options, scheme_.fills_devices);
    }

  private:
    /// Registers a little memory of the first GPU for trial.
    [[nodiscard]] core::probe_result probe_gpu(const std::shared_ptr<verbs::device>& on) {
        auto gpu = context_.devices()->open(memory_kind::cuda(0));
        if (!gpu) return {false, gpu.error().message};
        constexpr std::size_t bytes = std::size_t{64} << 10;
        auto memory = (*gpu)->allocate(bytes);
        if (!memory) return {false, memory.error().message};
        std::string failure;
        if (auto trial = verbs::domain::create(on); !trial)
            failure = trial.error().message;
        else if (auto registered = (*trial)->register_memory({*memory, bytes}, verbs::access::peer_writes, *gpu);
                 !registered)
            failure = registered.error().message;
        (*gpu)->release(*memory);
        if (!failure.empty()) return {false, fmt::format("{}: {}", on->name(), failure)};
        return {true,
                fmt::format("{}, into the memory of {}; payloads are not encrypted", on->describe(), (*gpu)->name())};
    }

    core::context_state& context_;
    scheme_traits scheme_;
    std::shared_ptr<verbs::domain_list> domains_ = std::make_shared<verbs::domain_list>();
    verbs::device_cache devices_;
};

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state& context, const scheme_traits& scheme) {
    return std::make_unique<rdma_backend>(context, scheme);
}

}  // namespace accel::rdma
