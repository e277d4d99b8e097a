// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/model_server/settings.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

/// The URI of the process `index`: port + index × stride. Port 0, any free one, stays; a name without a port gets
/// "-index". `invalid_argument`: that port is none.
[[nodiscard]] result<std::string> uri_of_context(std::string_view uri, std::uint32_t index, std::uint32_t stride);
/// How far the ports of processes lie apart: zmq takes two.
[[nodiscard]] std::uint32_t port_stride(const std::vector<std::string>& uris);
/// The command line of the process `index`, without its program: the parent's with its own URIs.
[[nodiscard]] result<std::vector<std::string>> arguments_of_context(const settings& chosen, std::uint32_t index);

/// Runs `contexts` processes of this program until a stop signal, which the caller has blocked. Prints their endpoints
/// together, and the sum of their summaries. The death of one ends all, with exit status 1.
[[nodiscard]] int run_contexts(const settings& chosen);

}  // namespace accel::examples::serving
