// SPDX-License-Identifier: Apache-2.0
#include "backends/local/link.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/registry.hpp"

namespace accel::local {
namespace {

class local_backend : public core::backend {
  public:
    [[nodiscard]] std::string_view scheme() const noexcept override { return "local"; }
    [[nodiscard]] core::probe_result probe() override { return {true, "same process; nothing is copied"}; }
    [[nodiscard]] bool shares_memory() const noexcept override { return true; }
    [[nodiscard]] bool writes_lent_memory() const noexcept override { return true; }
    [[nodiscard]] bool encrypts() const noexcept override { return true; }  // nothing leaves the process
    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options&) override {
        auto made = std::make_unique<local_poller>();
        if (made->event_fd() < 0) return core::no_descriptor("for local", -made->event_fd());
        return std::unique_ptr<core::poller>(std::move(made));
    }
};

}  // namespace

std::unique_ptr<core::backend> make_backend() {
    return std::make_unique<local_backend>();
}

}  // namespace accel::local
