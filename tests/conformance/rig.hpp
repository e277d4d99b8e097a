// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends.hpp"
#include "checked_channel.hpp"
#include "handler_memory.hpp"
#include "held_exchanges.hpp"
#include "patience.hpp"
#include "payload.hpp"

#include <accel_transport/accel_transport.hpp>

#include <memory>
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

/// Base of the parameterised suites.
class on_every_backend : public ::testing::TestWithParam<backend_case> {};

/// Instantiates `suite` (derived from `on_every_backend`) for the given rows; ctest selects by the scheme's
/// name.
#define ACCEL_INSTANTIATE(suite, rows)                                     \
    INSTANTIATE_TEST_SUITE_P(backends, suite, ::testing::ValuesIn(rows()), \
                             [](const auto& row) { return row.param.scheme; })

}  // namespace accel::tests
