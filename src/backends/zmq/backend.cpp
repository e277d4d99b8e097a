// SPDX-License-Identifier: Apache-2.0
#include "backends/zmq/client.hpp"
#include "backends/zmq/server.hpp"
#include "backends/zmq/shared_context.hpp"
#include "core/control/security.hpp"
#include "core/registry.hpp"

#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace accel::zmq {
namespace {

class zmq_backend final : public core::backend {
  public:
    [[nodiscard]] std::string_view scheme() const noexcept override { return "zmq"; }
    [[nodiscard]] bool has_data_port() const noexcept override { return true; }
    [[nodiscard]] bool encrypts() const noexcept override { return true; }
    [[nodiscard]] bool paces() const noexcept override { return true; }
    [[nodiscard]] std::uint32_t session_descriptors() const noexcept override { return 1; }

    [[nodiscard]] core::probe_result probe() override {
        int major = 0;
        int minor = 0;
        int patch = 0;
        zmq_version(&major, &minor, &patch);
        const bool curve = zmq_has("curve") != 0;
        return {true,
                fmt::format("ZeroMQ {}.{}.{} over TCP, {}; only for clients that you trust not to harm the server "
                            "(docs/security.md)",
                            major, minor, patch,
                            curve ? "payloads encrypted with CURVE where keys are used"
                                  : "insecure only: this libzmq was built without CURVE")};
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        auto zmq = shared();
        if (!zmq) return zmq.error();
        if (options.role == core::link_role::server) return server_poller::open(*zmq, options);
        return client_poller::open(std::move(*zmq), options.security->insecure());
    }

  private:
    /// Made on first use; pollers and links hold it as well.
    [[nodiscard]] result<std::shared_ptr<shared_context>> shared() {
        const std::scoped_lock lock{mutex_};
        if (zmq_ != nullptr) return zmq_;
        auto made = shared_context::open();
        if (made) zmq_ = *made;
        return made;
    }

    std::mutex mutex_;
    std::shared_ptr<shared_context> zmq_;
};

}  // namespace

std::unique_ptr<core::backend> make_backend() {
    return std::make_unique<zmq_backend>();
}

}  // namespace accel::zmq
