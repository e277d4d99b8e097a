// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/zmq/credentials.hpp"
#include "core/backend.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

/// The descriptions that the two ends exchange over the control plane (docs/protocol.md, section 6). With a public key
/// the data path uses CURVE, without one PLAIN.
namespace accel::zmq {

struct client_description {
    std::optional<curve_key> key;
};

struct server_description {
    std::uint16_t port = 0;   ///< never 0
    std::uint32_t index = 0;  ///< of the session at its ROUTER
    std::optional<curve_key> key;
};

[[nodiscard]] core::link_description encode(const client_description& told);
[[nodiscard]] core::link_description encode(const server_description& told);

/// `protocol_error`: not what a correct peer says.
[[nodiscard]] result<client_description> parse_client(std::span<const std::byte> bytes);
[[nodiscard]] result<server_description> parse_server(std::span<const std::byte> bytes);

/// `unauthorized`: one end has a key and the other has not.
[[nodiscard]] error mixed_keys();

}  // namespace accel::zmq
