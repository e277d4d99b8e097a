// SPDX-License-Identifier: Apache-2.0
#include "core/registry.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace accel::core {
namespace {

/// Of all builds, as `make_backends` has them, and `auto`.
constexpr std::array<std::string_view, 8> scheme_names{"local", "shm", "gdr", "rdma", "gpu", "tcp", "zmq", "auto"};

using backends = std::vector<std::unique_ptr<backend>>;

/// Stands for a scheme that this build was configured without: it is never usable, and says why.
class left_out_backend final : public backend {
  public:
    left_out_backend(std::string_view scheme, std::string_view option) : scheme_(scheme), option_(option) {}
    [[nodiscard]] std::string_view scheme() const noexcept override { return scheme_; }
    [[nodiscard]] std::string left_out() const override {
        return fmt::format("left out of this build; configure it with -D{}=ON", option_);
    }
    [[nodiscard]] probe_result probe() override { return {false, left_out()}; }
    [[nodiscard]] result<std::unique_ptr<poller>> open_poller(const poller_options&) override {
        return error{status::unsupported, 0, left_out()};
    }

  private:
    std::string_view scheme_;
    std::string_view option_;
};

#if ACCEL_VERBS
std::unique_ptr<backend> gpu_backend([[maybe_unused]] context_state& context) {
#if ACCEL_KERNELS
    return gpu::make_backend(context, rdma::make_backend(context, {.name = "gpu", .fills_devices = false}));
#else
    return std::make_unique<left_out_backend>("gpu", "ACCEL_KERNELS");
#endif
}
#endif

void add_verbs_backends([[maybe_unused]] context_state& context, backends& all) {
#if ACCEL_VERBS
    all.push_back(rdma::make_backend(context, {.name = "gdr", .fills_devices = true}));
    all.push_back(rdma::make_backend(context, {.name = "rdma", .fills_devices = false}));
    all.push_back(gpu_backend(context));
#else
    for (const char* scheme : {"gdr", "rdma", "gpu"})
        all.push_back(std::make_unique<left_out_backend>(scheme, "ACCEL_VERBS"));
#endif
}

std::unique_ptr<backend> zmq_backend() {
#if ACCEL_ZMQ
    return zmq::make_backend();
#else
    return std::make_unique<left_out_backend>("zmq", "ACCEL_ZMQ");
#endif
}

}  // namespace

std::vector<std::unique_ptr<backend>> make_backends(context_state& context) {
    backends all;
    all.push_back(local::make_backend());
    all.push_back(shm::make_backend(context));
    add_verbs_backends(context, all);
    all.push_back(tcp::make_backend());
    all.push_back(zmq_backend());
    return all;
}

bool is_scheme_name(std::string_view scheme) noexcept {
    return std::ranges::find(scheme_names, scheme) != scheme_names.end();
}

error unknown_scheme(std::string_view scheme) {
    return {
        status::unsupported, 0,
        fmt::format("unknown scheme '{}'; the schemes are local, shm, gdr, rdma, gpu, tcp, zmq, and auto for clients",
                    scheme)};
}

}  // namespace accel::core
