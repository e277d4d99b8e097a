// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/call_backlog.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_slots.hpp"

#include <accel_transport/channel.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::core {

/// Requests in parts, at the client. Each part is a message in a slot of its own, which comes back when the server's
/// handler has released the part, or when the call has its answer. Parts are numbered, because a transport may let
/// short ones pass long ones. Only calls in parts come here. Allocates when it is made.
class part_writer {
  public:
    part_writer(channel_slots& slots, call_backlog& backlog, const channel_lifecycle& life)
        : slots_(slots), backlog_(backlog), life_(life), calls_(slots.count()), call_of_(slots.count()) {}

    /// A call has been submitted whose request continues.
    void start(const channel_slot& call) noexcept;
    /// It takes parts: it has not ended, and its last part has not been sent.
    [[nodiscard]] bool is_open(call_id call) const noexcept;
    /// A slot that has just been taken is for the next part of this call.
    void begin(channel_slot& part, call_id call) noexcept;
    /// The call of a part that was begun.
    [[nodiscard]] call_id call_of(const channel_slot& part) const noexcept { return call_of_[part.content.id.slot]; }
    /// Sends the first `length` bytes of a part whose call is open. What the link does not take waits in the backlog,
    /// which finds out if the link has failed.
    void send(channel_slot& part, std::size_t length, bool last) noexcept;
    /// The server gives the slot of a part back.
    void on_returned(channel_slot& part) noexcept {
        part.owed = false;
        slots_.put_free(part);
    }
    /// A call ends before its answer: its parts that have not left come back.
    void end_early(const channel_slot& call) noexcept;
    /// Slots that the server still has of calls that have ended.
    [[nodiscard]] std::uint32_t left_behind() const noexcept;
    /// They are in the way, now.
    void note_left_behind(nanoseconds at) noexcept;
    /// Since when the first of them is known to be in the way.
    [[nodiscard]] nanoseconds left_since() const noexcept;
    /// The connection is gone: its server keeps no slot.
    void settle_all() noexcept;

  private:
    /// The last call in a slot whose request continued.
    struct upload {
        std::uint32_t generation = 0;
        bool complete = false;   ///< its last part has been sent
        std::uint64_t sent = 0;  ///< parts
    };

    [[nodiscard]] bool is_awaiting(call_id call) const noexcept;
    [[nodiscard]] bool is_left(const channel_slot& slot) const noexcept {
        return slot.state == slot_state::part_sent && !is_awaiting(call_of(slot));
    }

    channel_slots& slots_;
    call_backlog& backlog_;
    const channel_lifecycle& life_;
    std::vector<upload> calls_;
    std::vector<call_id> call_of_;  ///< by the slot of a part
};

}  // namespace accel::core
