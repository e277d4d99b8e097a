// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/endpoint.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>

namespace accel::verbs {

/// One end of a reliable connection (RC), whoever made it and drives its queues: how it is brought up and ends.
/// Control path; one thread at a time. Destroying it ends all access to memory, by either end, before the destructor
/// returns.
class connected_queue {
  public:
    virtual ~connected_queue() = default;
    /// Fills in what is the queue pair's own: address, number, first PSN (random).
    virtual void describe(endpoint& out) const noexcept = 0;
    /// Brings it up to its peer: INIT → RTR → RTS. Once, or once after each `reset`.
    [[nodiscard]] virtual result<void> connect(const endpoint& peer, const verbs_options& options) = 0;
    /// Ends all access to memory, by either end, before it returns; then `connect` may be called again.
    [[nodiscard]] virtual result<void> reset() = 0;
    [[nodiscard]] virtual std::uint32_t number() const noexcept = 0;

  protected:
    connected_queue() = default;
    connected_queue(const connected_queue&) = default;
    connected_queue(connected_queue&&) = default;
    connected_queue& operator=(const connected_queue&) = default;
    connected_queue& operator=(connected_queue&&) = default;
};

}  // namespace accel::verbs
