// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"
#include "report/child_process.hpp"

#include <accel_transport/accel_transport.hpp>

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::tests {

/// A gateway in a process of its own. Throws where it does not start.
class gateway_process {
  public:
    explicit gateway_process(const std::vector<std::string>& arguments, const char* program = nullptr);

    /// With the options that a client needs.
    [[nodiscard]] std::string uri(std::size_t i = 0) const;
    void send_signal(int which) const;
    /// Asks it to end, and returns its summary.
    [[nodiscard]] nlohmann::json stop();

  private:
    std::optional<report::child_process> process_;
    std::vector<std::string> endpoints_;
};

/// Where a server of this process or a gateway may listen.
[[nodiscard]] std::string any_uri(const std::string& scheme);
/// What clients connect to: an endpoint, with the options that it needs.
[[nodiscard]] std::string client_uri(const std::string& endpoint);
/// How long gateways wait for their servers: an emulated machine takes seconds to register slots.
[[nodiscard]] std::string long_wait();
/// What a gateway connects to, from a `client_uri`. It waits that long.
[[nodiscard]] std::string server_uri(const std::string& uri);
/// A server of the test in `ctx`, with the options that its scheme needs.
[[nodiscard]] server listen(context& ctx, const std::string& uri, const service_table& services);
[[nodiscard]] server listen(context& ctx, const std::string& uri, handler service);
/// A client of the gateway.
[[nodiscard]] channel connect(context& ctx, const std::string& uri, channel_options options = {});

/// What the tests' servers answer: the request's bytes, each changed, as many as the client accepts, and its tensors.
void answer_changed(exchange one);
[[nodiscard]] bool is_changed(std::span<const std::byte> response, std::uint64_t seed, std::size_t length);

}  // namespace accel::tests
