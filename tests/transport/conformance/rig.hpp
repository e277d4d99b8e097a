// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends.hpp"
#include "checked_channel.hpp"
#include "handler_memory.hpp"
#include "held_exchanges.hpp"
#include "patience.hpp"
#include "payload.hpp"

#include <accel_transport/accel_transport.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace accel::tests {

/// Options for tests in which nobody dies: a loaded machine must not look like a lost peer.
[[nodiscard]] server_options calm_server();
[[nodiscard]] channel_options calm_client();

/// A context whose log is off, as refusals are expected here; throws on failure. `metrics`: it counts.
[[nodiscard]] context quiet_context(bool metrics = false);

/// Answers with the request's own bytes, as many as the client accepts.
void echo(exchange one);

/// One server in this process, on one backend. Throws where the library says no.
class rig {
  public:
    explicit rig(const backend_case& backend, handler service = echo, const server_options& options = calm_server(),
                 const std::string& query = {});

    [[nodiscard]] context& ctx() noexcept { return context_; }
    [[nodiscard]] server& served() noexcept { return *server_; }
    /// Where clients connect.
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    [[nodiscard]] checked_channel connect(const channel_options& options = calm_client());
    [[nodiscard]] result<channel> try_connect(const channel_options& options = calm_client());
    /// The server is gone after this; the context stays.
    void destroy_server() { server_.reset(); }

  private:
    context context_;
    std::unique_ptr<server> server_;
    std::string uri_;
};

/// Of this process.
[[nodiscard]] std::size_t open_descriptors();

/// The same place for a child that was forked, which has no GPU: `rdma`, whose wire `gdr` shares.
[[nodiscard]] inline std::string without_gpu(const std::string& uri) {
    return uri.starts_with("gdr:") ? "rdma" + uri.substr(3) : uri;
}

/// Waits until a handler has the request, which `has_it` says. False: its deadline passed on the way, as on a busy
/// machine, and the server refused it.
template <class Condition>
[[nodiscard]] bool reaches_its_handler(rig& r, Condition has_it, std::uint64_t expired_before = 0) {
    const auto is_there = [&] { return has_it() || r.served().statistics().expired > expired_before; };
    if (!eventually(until_hung(), is_there)) throw std::runtime_error("no request arrived");
    return has_it();
}
[[nodiscard]] inline bool reaches_its_handler(rig& r, const held_exchanges& held) {
    return reaches_its_handler(r, [&] { return held.size() > 0; });
}

/// Base of the parameterised suites.
class on_every_backend : public ::testing::TestWithParam<backend_case> {};

/// Instantiates `suite` (derived from `on_every_backend`) for the given rows; ctest selects by the scheme's
/// name.
#define ACCEL_INSTANTIATE(suite, rows)                                     \
    INSTANTIATE_TEST_SUITE_P(backends, suite, ::testing::ValuesIn(rows()), \
                             [](const auto& row) { return row.param.scheme; })

}  // namespace accel::tests
