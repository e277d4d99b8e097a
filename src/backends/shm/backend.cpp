// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/poller.hpp"
#include "core/context_state.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/registry.hpp"

#include <fmt/format.h>

namespace accel::shm {
namespace {

class shm_backend final : public core::backend {
  public:
    explicit shm_backend(core::context_state& context) noexcept : context_(context) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return "shm"; }
    [[nodiscard]] bool encrypts() const noexcept override { return true; }  // nothing leaves the host
    /// Memory of requests and responses, until its client has taken them.
    [[nodiscard]] std::uint32_t session_descriptors() const noexcept override { return 2; }

    [[nodiscard]] core::probe_result probe() override {
        const auto made = segment::create(page_bytes, peer_access::read);
        // If descriptors are short, nothing can be tried; `connect` and `listen` report that.
        if (made || core::is_shortage(made.error().native))
            return {true, "memory shared by processes of one user on this host"};
        return {false, fmt::format("memory cannot be shared: {}", made.error().message)};
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        return shm_poller::open(options, context_.devices());
    }

  private:
    core::context_state& context_;
};

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state& context) {
    return std::make_unique<shm_backend>(context);
}

}  // namespace accel::shm
