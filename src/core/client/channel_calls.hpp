// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/call_backlog.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_slots.hpp"
#include "core/client/channel_staging.hpp"
#include "core/client/part_reader.hpp"
#include "core/client/range_lists.hpp"
#include "core/metrics/client_metrics.hpp"

#include <accel_transport/channel.hpp>

#include <cstdint>
#include <memory>
#include <new>

namespace accel::core {

/// The rest of the room that `poll` was given.
struct completion_room {
    completion* next = nullptr;
    std::size_t left = 0;
};

/// The sizes and the target in the header of a request.
struct request_shape {
    std::size_t length = 0;
    std::size_t room = 0;  ///< for the response
    std::uint32_t target = 0;
};

/// The calls of a channel, from the moment the link has them (or they wait for it) until their release.
class channel_calls {
  public:
    channel_calls(const connect_request& request, event_set& wakeups);

    [[nodiscard]] channel_slots& slots() noexcept { return slots_; }
    [[nodiscard]] const channel_slots& slots() const noexcept { return slots_; }
    [[nodiscard]] call_backlog& backlog() noexcept { return backlog_; }
    [[nodiscard]] const call_backlog& backlog() const noexcept { return backlog_; }
    [[nodiscard]] channel_staging& staging() noexcept { return staging_; }
    [[nodiscard]] const channel_staging& staging() const noexcept { return staging_; }
    [[nodiscard]] part_reader& parts() noexcept { return parts_; }
    /// The ranges of requests, and of responses.
    [[nodiscard]] range_lists& gathered() noexcept { return gathered_; }
    [[nodiscard]] range_lists& scattered() noexcept { return scattered_; }
    [[nodiscard]] const range_lists& scattered() const noexcept { return scattered_; }
    /// False: nothing waits in `backlog` or `staging`, and no loss waits for its reason.
    [[nodiscard]] bool has_detours() const noexcept { return detours_; }
    void set_detours(bool any) noexcept { detours_ = any; }

    /// A call is about to be submitted; `settle_submission` takes it back if it is not.
    void count_submission() noexcept { submitted_.add(); }
    /// The outcome.
    status settle_submission(status outcome) noexcept {
        if (outcome != status::ok) submitted_.add(~std::uint64_t{0});
        return outcome;
    }
    /// Writes the header of a request into its slot, and when the call ends.
    void stamp(channel_slot& slot, nanoseconds submitted, const request_shape& shape, const submit_options& options,
               const channel_lifecycle& over) const noexcept;
    /// Calls of the backlog leave before later ones.
    [[nodiscard]] bool queues_behind_others() const noexcept { return detours_ && !backlog_.empty(); }
    /// The call is submitted, and the link of that epoch has it.
    status accept_sent(channel_slot& slot, bool lends, std::uint32_t epoch, const submit_options& options) noexcept {
        slot.owed = true;
        slot.lent = lends;
        slot.staged = false;
        slot.epoch = epoch;
        accept(slot, options);
        return status::ok;
    }
    /// The call is submitted.
    void accept(channel_slot& slot, const submit_options& options) noexcept {
        slot.content.tag = options.tag;
        slot.content.trace_id = options.trace_id;
        slots_.set_in_flight(slot);
    }
    /// A response, straight into `out` as far as there is room and none waits before it. False: no correct
    /// server sends it.
    [[nodiscard]] bool on_response(const link_event& event, nanoseconds at, const channel_lifecycle& over,
                                   completion_room& out) noexcept;
    /// The transport no longer touches what was lent for this slot.
    void on_buffer_released(std::uint32_t slot) noexcept;
    /// Completions that wait. Returns what is left of the room.
    [[nodiscard]] completion_room hand_out(completion_room out) noexcept;

    /// Completes a call before its answer: at once, unless the transport still touches memory that was lent
    /// for it. Then the server has a `peer_timeout` to release it.
    void end_early(channel_slot& slot, status why, nanoseconds at, const channel_lifecycle& over,
                   std::uint32_t code = 0) noexcept;
    /// Ends what is too late. True: lent memory of a call that has ended is kept for too long.
    [[nodiscard]] bool expire(nanoseconds at, const channel_lifecycle& over) noexcept;
    /// The connection is lost: ends every call.
    void end_all(nanoseconds at, channel_lifecycle& over) noexcept;
    /// … and nothing touches lent memory any more.
    void settle_all() noexcept;
    [[nodiscard]] status release(channel_slot& slot, channel_lifecycle& over) noexcept;
    /// Whether an application still holds responses of that epoch's connection.
    [[nodiscard]] bool hold_responses(std::uint32_t epoch) const noexcept;
    [[nodiscard]] channel_statistics statistics() const noexcept;
    /// Slots that wait for a late answer.
    [[nodiscard]] std::uint32_t quarantined() const noexcept { return static_cast<std::uint32_t>(quarantined_.read()); }
    /// Slots that no call has and that only a late answer frees.
    [[nodiscard]] std::uint32_t late() const noexcept { return quarantined() + parts_.left_behind(); }
    /// One of them has waited for longer than `quarantine_timeout`.
    [[nodiscard]] bool gives_up_on_late_answers(nanoseconds at) const noexcept;
    /// Its completion has been handed out.
    void count(const channel_slot& slot, const completion& out) noexcept {
        if (metrics_ != nullptr) metrics_->count(out, slot.asked);
    }
    /// Bytes of a list of ranges were copied from or to a slot.
    void count_copied(std::size_t bytes) noexcept {
        if (metrics_ != nullptr) metrics_->count_copied(bytes);
    }
    void count_reconnect() noexcept {
        if (metrics_ != nullptr) metrics_->count_reconnect();
    }

  private:
    [[nodiscard]] bool on_staged_response(channel_slot& slot, const link_event& event, nanoseconds at,
                                          const channel_lifecycle& over) noexcept;
    [[nodiscard]] bool scatter(channel_slot& slot, const link_event& event) noexcept;
    [[nodiscard]] bool is_sane(const link_event& event) const noexcept;
    [[nodiscard]] bool on_other_response(const link_event& event, nanoseconds at,
                                         const channel_lifecycle& over) noexcept;
    void on_late_response(channel_slot& slot, const slot_header& header) noexcept;
    void end_late(channel_slot& slot, nanoseconds at, const channel_lifecycle& over) noexcept;
    void consumed(channel_slot& slot, channel_lifecycle& over) noexcept;

    const nanoseconds timeout_;  ///< of calls that name none
    const nanoseconds quarantine_timeout_;
    channel_slots slots_;
    call_backlog backlog_;
    channel_staging staging_;
    part_reader parts_;
    range_lists gathered_;
    range_lists scattered_;
    bool detours_ = false;
    counter submitted_;
    counter quarantined_;  ///< now
    std::uint64_t stale_ = 0;
    std::unique_ptr<client_metrics> metrics_;  ///< null: nothing is counted
};

// In the data path of `channel_core`.

[[gnu::always_inline]] inline void channel_calls::stamp(channel_slot& slot, nanoseconds submitted,
                                                        const request_shape& shape, const submit_options& options,
                                                        const channel_lifecycle& over) const noexcept {
    const nanoseconds timeout = options.timeout > nanoseconds{0} ? options.timeout : timeout_;
    std::int64_t ends = 0;
    std::int64_t at_server = never.count();
    if (__builtin_add_overflow(submitted.count(), timeout.count(), &ends)) [[unlikely]]
        ends = never.count();
    else if (__builtin_add_overflow(ends, over.clock_offset().count(), &at_server)) [[unlikely]]
        at_server = never.count();
    slot.submitted = submitted;
    slot.deadline = nanoseconds{ends};
    slot.ask(shape.length, shape.target);
    // Read before anything is written: the compiler cannot know that the header lies apart.
    const call_id id = slot.content.id;
    const std::uint64_t trace_id = options.trace_id;
    auto& header = *new (slot.header) slot_header;
    header.slot = id.slot;
    header.generation = id.generation;
    header.length = shape.length;
    header.trace_id = trace_id;
    header.target = shape.target;
    header.response_room = static_cast<std::uint32_t>(shape.room);
    header.deadline_ns = at_server;
}

[[gnu::always_inline]] inline bool channel_calls::is_sane(const link_event& event) const noexcept {
    const slot_header& header = event.header;
    return is_well_formed(header, message_kind::response) && header.slot < slots_.count() &&
           header.length <= max_payload_bytes && event.payload.size() == header.length;
}

[[gnu::always_inline]] inline bool channel_calls::on_response(const link_event& event, nanoseconds at,
                                                              const channel_lifecycle& over,
                                                              completion_room& out) noexcept {
    const slot_header& header = event.header;
    if (!is_sane(event)) [[unlikely]]
        return on_other_response(event, at, over);
    channel_slot& slot = slots_[header.slot];
    const bool awaited =
        slot.owed && slot.content.id.generation == header.generation && slot.state == slot_state::in_flight;
    if (!awaited) [[unlikely]]
        return on_other_response(event, at, over);
    if (slot.staged) [[unlikely]]
        return on_staged_response(slot, event, at, over);
    if (slot.scatters && !scatter(slot, event)) [[unlikely]]
        return false;
    slot.owed = false;
    slot.holds_response = event.borrowed;
    if (out.left > 0 && slots_.ready() == 0) [[likely]] {
        --out.left;
        completion& made = *out.next++;
        slot.fill(made, event, at, over.clock_offset());
        count(slot, made);
        slots_.finish_taken(slot);
    } else {
        slot.fill(slot.content, event, at, over.clock_offset());
        slots_.finish(slot);
    }
    return true;
}

}  // namespace accel::core
