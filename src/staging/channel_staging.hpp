// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/channel_slots.hpp"
#include "core/client/connect.hpp"
#include "core/event_set.hpp"
#include "staging/gpu_staging.hpp"

#include <cstdint>
#include <memory>

namespace accel::core {

/// The parts of a call that are copied over its slot.
struct staged_parts {
    bool payload = false;
    bool response = false;
};

/// The part of a call's way that leads over a GPU whose memory the transport does not reach: its payload into
/// the request's slot, its response to where it is wanted. Nothing allocates, locks or logs, but for the
/// first use of a slot.
class channel_staging {
  public:
    channel_staging(const connect_request& request, channel_slots& slots, event_set& wakeups) noexcept
        : request_(request), slots_(slots), wakeups_(wakeups) {}

    /// Some call waits for a copy, or for the link.
    [[nodiscard]] bool active() const noexcept { return copies_ != nullptr && copies_->active(); }
    /// While active: `event_fd` will say when there is more to do.
    [[nodiscard]] bool wakes() const noexcept { return copies_->wakes(); }
    /// Readable when a copy has ended; -1: nobody sleeps.
    [[nodiscard]] int event_fd() const noexcept { return copied_.get(); }
    void clear_event() const noexcept;

    /// For a call that is about to be submitted.
    [[nodiscard]] status prepare(const outgoing& message, staged_parts staged);
    /// Starts the copy of the payload into its slot.
    void copy_out(channel_slot& slot) noexcept;
    /// Hands the message to the link. `again` leaves it to be tried later.
    [[nodiscard]] status deliver(channel_slot& slot, link& path, std::uint32_t epoch) noexcept;
    void wait_for_link(channel_slot& slot) noexcept;
    /// Goes on with all copies, and delivers what is complete over `path` unless that is null. A failure of
    /// the link, or `ok`.
    [[nodiscard]] status poll(link* path, std::uint32_t epoch) noexcept;
    /// False: the response is longer than its room, which no correct server sends.
    [[nodiscard]] bool on_response(channel_slot& slot, const link_event& event, nanoseconds at,
                                   nanoseconds clock_offset) noexcept;
    /// The call ends early. True: a copy still touches what it lent.
    [[nodiscard]] bool abandon(const channel_slot& slot) noexcept;
    [[nodiscard]] bool copies(const channel_slot& slot) const noexcept;
    /// Waits for what is being copied. False: it goes on after `deadline`.
    [[nodiscard]] bool finish(nanoseconds deadline) noexcept;

  private:
    [[nodiscard]] status prepare_stream(std::uint32_t slot, accelerator_device& gpu);
    void on_copied(channel_slot& slot, staged_call& call, bool done) noexcept;

    const connect_request& request_;
    channel_slots& slots_;
    event_set& wakeups_;
    unique_fd copied_;
    std::unique_ptr<gpu_staging> copies_;  ///< null until a call needs it
};

}  // namespace accel::core
