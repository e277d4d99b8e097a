// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_calls.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_loss.hpp"
#include "core/client/connect.hpp"

namespace accel::core {

/// The parts that few calls have: lent memory, tensors, a target, a trace, parts, a copy to a GPU, a wait for the link.
/// In the order in which they are submitted; `channel_core` sends all others itself.
class call_extras {
  public:
    call_extras(const connect_request& request, channel_lifecycle& life, channel_calls& calls, channel_loss& loss);

    /// A call with a lent payload, a place for its response, tensors, a target, parts, or a trace.
    status submit(channel_slot& slot, outgoing message, const submit_options& options) noexcept;
    /// The same with a payload in ranges.
    status submit_ranges(channel_slot& slot, std::span<const slice> ranges, const submit_options& options) noexcept;
    /// A message that the link has no room for waits in the backlog, as does every one behind it.
    status hold_back(channel_slot& slot, const outgoing& message, status unsent,
                     const submit_options& options) noexcept;
    /// Calls that wait for a copy, for room, or for the reason of a loss.
    void follow_detours() noexcept;

  private:
    [[nodiscard]] status check_more(const submit_options& options) const noexcept;
    [[nodiscard]] status check_parts(const submit_options& options) const noexcept;
    [[nodiscard]] bool is_staged(const region_state* lent, bool written) const noexcept;
    [[nodiscard]] status describe(outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status gather(channel_slot& slot, const submit_options& options, outgoing& out) noexcept;
    [[nodiscard]] status keep_scattered(outgoing& message, const submit_options& options) noexcept;
    [[nodiscard]] std::size_t response_room(const channel_slot& slot, const submit_options& options) const noexcept;
    void trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept;
    void add_baggage(outgoing& message, const submit_options& options) const noexcept;
    void stamp_more(channel_slot& slot, const outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status hand_over(const outgoing& message) noexcept;
    status submit_in_parts(channel_slot& slot, const outgoing& message, const submit_options& options) noexcept;
    status submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                         const submit_options& options) noexcept;
    [[nodiscard]] bool link_takes_calls() const noexcept;

    const connect_request& request_;
    channel_lifecycle& life_;
    channel_calls& calls_;
    channel_loss& loss_;
};

}  // namespace accel::core
