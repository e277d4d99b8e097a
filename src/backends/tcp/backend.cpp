// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/poller.hpp"
#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"
#include "core/net/unique_fd.hpp"
#include "core/registry.hpp"

#include <cerrno>
#include <cstring>
#include <string>

#include <sys/socket.h>

namespace accel::tcp {
namespace {

class tcp_backend final : public core::backend {
  public:
    [[nodiscard]] std::string_view scheme() const noexcept override { return "tcp"; }

    [[nodiscard]] bool encrypts() const noexcept override { return true; }
    [[nodiscard]] bool paces() const noexcept override { return true; }
    [[nodiscard]] std::uint32_t session_descriptors() const noexcept override { return 1; }

    [[nodiscard]] core::probe_result probe() override {
        for (const int family : {AF_INET, AF_INET6}) {
            // If descriptors are short, nothing can be tried; `connect` and `listen` report that.
            const core::unique_fd made(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (made.open() || core::is_shortage(made.failure()))
                return {true, "TCP sockets of the OS; payloads encrypted with TLS 1.3 where keys are used"};
        }
        return {false, std::string("TCP sockets cannot be opened (") + std::strerror(errno) +
                           "); check the network namespace"};
    }

    [[nodiscard]] result<std::unique_ptr<core::poller>> open_poller(const core::poller_options& options) override {
        return tcp_poller::open(options);
    }
};

}  // namespace

std::unique_ptr<core::backend> make_backend() {
    return std::make_unique<tcp_backend>();
}

}  // namespace accel::tcp
