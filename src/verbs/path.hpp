// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/device.hpp"
#include "verbs/endpoint.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstdint>

#include <infiniband/verbs.h>

/// A queue pair's description of its port for the peer, and its way to the peer's port. The same for every kind of
/// queue pair.
namespace accel::verbs {

/// Fills in link layer, MTU and address.
void describe_port(const device& on, endpoint& out) noexcept;
/// `unsupported`: one end is InfiniBand, the other Ethernet.
[[nodiscard]] result<void> check_layer(const device& on, const endpoint& peer);
[[nodiscard]] ibv_ah_attr path_to(const device& on, const endpoint& peer) noexcept;

[[nodiscard]] result<std::uint32_t> random_psn();

/// The exponent e of the acknowledgement timeout 4.096 µs · 2^e (InfiniBand specification, section 9.7.6.1.3)
/// that is nearest to, and not below, `timeout`; 1 to 31.
[[nodiscard]] std::uint8_t timeout_exponent(std::chrono::nanoseconds timeout) noexcept;

/// "Receiver not ready" is retried without end: how long a call may take is its own deadline's business, and
/// a peer that is gone is noticed on the control plane.
inline constexpr std::uint8_t rnr_retries_without_end = 7;
/// 0.64 ms (InfiniBand specification, table 45): what a sender waits when no receive is posted.
inline constexpr std::uint8_t rnr_timer_640_us = 12;

}  // namespace accel::verbs
