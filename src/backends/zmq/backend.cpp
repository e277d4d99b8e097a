#include "backends/zmq/backend.hpp"

#include "backends/zmq/client.hpp"
#include "backends/zmq/server.hpp"
#include "core/context_state.hpp"

#include <fmt/format.h>

namespace accel::zmq {
namespace {

class zmq_backend final : public core::backend {
  public:
    explicit zmq_backend(core::context_state& context) : context_(context) {}

    [[nodiscard]] std::string_view scheme() const noexcept override { return "zmq"; }

    [[nodiscard]] core::probe_result probe() override {
        int major = 0;
        int minor = 0;
        int patch = 0;
        zmq_version(&major, &minor, &patch);
        const bool curve = zmq_has("curve") != 0;
        return {true, fmt::format("ZeroMQ {}.{}.{} over TCP, {}", major, minor, patch,
                                  curve ? "payloads encrypted with CURVE where keys are used"
                                        : "insecure only: this libzmq was built without CURVE")};
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(
        const core::poller_options& options) override {
        if (options.role == core::link_role::server) return server_poller::open(context_.zmq(), options);
        return std::unique_ptr<core::poller>{
            std::make_unique<client_poller>(context_.zmq(), options.security)};
    }

  private:
    core::context_state& context_;
};

}  // namespace

std::unique_ptr<core::backend> make_backend(core::context_state& context) {
    return std::make_unique<zmq_backend>(context);
}

}  // namespace accel::zmq
