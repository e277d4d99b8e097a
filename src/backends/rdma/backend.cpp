#include "backends/rdma/backend.hpp"

#include "backends/rdma/poller.hpp"
#include "core/region_state.hpp"
#include "verbs/device.hpp"
#include "verbs/domain_list.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace accel::rdma {
namespace {

/// Registers a little memory for trial: where the limit of locked memory is too low, nothing else works
/// either.
result<void> try_to_register(const std::shared_ptr<verbs::device>& on) {
    auto trial = verbs::domain::create(on);
    if (!trial) return trial.error();
    std::vector<std::byte> memory(std::size_t{256} << 10);
    auto registered = (*trial)->register_memory(memory, verbs::access::peer_writes);
    if (!registered) return registered.error();
    return {};
}

class rdma_backend final : public core::backend {
  public:
    [[nodiscard]] std::string_view scheme() const noexcept override { return "rdma"; }

    [[nodiscard]] core::probe_result probe() override {
        auto found = open_device({}, {});
        if (!found) return {false, found.error().message};
        if (auto registered = try_to_register(*found); !registered) {
            return {false, fmt::format("{}: {}", (*found)->name(), registered.error().message)};
        }
        return {true, (*found)->describe() + "; payloads are not encrypted"};
    }

    void unregister_region(const core::region_state& region) noexcept override {
        domains_->forget(region.id(), {region.data(), region.size()});
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(
        const core::poller_options& options) override {
        auto on = open_device(options.verbs, options.host);
        if (!on) return on.error();
        return rdma_poller::open(std::move(*on), domains_, options);
    }

  private:
    /// All pollers of a context that ask for the same share one.
    result<std::shared_ptr<verbs::device>> open_device(const verbs_options& wanted, const std::string& near) {
        const std::string key = fmt::format("{}|{}|{}|{}", wanted.device, wanted.gid_index, wanted.mtu, near);
        const std::lock_guard lock(mutex_);
        if (auto open = devices_[key].lock()) return open;
        auto made = verbs::device::open(wanted, near);
        if (made) devices_[key] = *made;
        return made;
    }

    std::shared_ptr<verbs::domain_list> domains_ = std::make_shared<verbs::domain_list>();
    std::mutex mutex_;
    std::map<std::string, std::weak_ptr<verbs::device>> devices_;
};

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state&) {
    return std::make_unique<rdma_backend>();
}

}  // namespace accel::rdma
