// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/client/call_backlog.hpp"
#include "core/client/channel_lifecycle.hpp"
#include "core/client/channel_slots.hpp"
#include "core/client/connect.hpp"
#include "core/client/part_reader.hpp"
#include "core/client/part_writer.hpp"
#include "core/client/range_lists.hpp"
#include "core/client/sole_use.hpp"
#include "core/event_set.hpp"
#include "core/event_signal.hpp"
#include "core/metrics/client_metrics.hpp"
#include "staging/channel_staging.hpp"

#include <accel_transport/channel.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

namespace accel {
class outgoing_call;
}

namespace accel::core {

/// The rest of the room that `poll` was given.
struct completion_room {
    completion* next = nullptr;
    std::size_t left = 0;
};

/// Ends a channel; what completions still refer to goes with the last of them.
struct channel_end {
    void operator()(channel_core* ended) const noexcept;
};
using channel_owner = std::unique_ptr<channel_core, channel_end>;

/// A channel: its connection over time (`channel_lifecycle`), its calls (`channel_slots`), and the way between the two,
/// in the order in which a call travels: submit.cpp, receive.cpp, wait.cpp; loss.cpp when the connection ends.
/// Nothing in the data path allocates, locks or logs, but for the end of a connection.
class channel_core {
  public:
    [[nodiscard]] static result<channel_owner> connect(std::shared_ptr<context_state> context, std::string_view text,
                                                       const channel_options& options);
    /// The same with the hosts of one URI. It is given up, as far as its waits allow, once `stopped`.
    [[nodiscard]] static result<channel_owner> connect(std::shared_ptr<context_state> context, std::vector<uri> hosts,
                                                       const channel_options& options,
                                                       const std::stop_token& stopped = {});
    /// Over a connection that has been made.
    channel_core(connect_request request, channel_connection made);
    ~channel_core() { close(); }
    channel_core(const channel_core&) = delete;
    channel_core& operator=(const channel_core&) = delete;

    // Data path.
    result<call_view, status> begin() noexcept;
    status submit(call_id id, std::size_t length, const submit_options& options) noexcept;
    status submit(call_id id, slice payload, const submit_options& options) noexcept;
    status submit(call_id id, std::span<const slice> ranges, const submit_options& options) noexcept;
    result<call_view, status> begin_part(call_id call) noexcept;
    status submit_part(call_id part, std::size_t length, const part_options& options) noexcept;
    /// Why a part was not begun: `again`, no slot is free; `invalid_state`.
    [[nodiscard]] status takes_parts(call_id call) noexcept {
        return inherited() || !request_parts_.is_open(call) ? refuse_part(call) : fail(status::again);
    }
    std::size_t poll(std::span<completion> out) noexcept;
    status cancel(call_id id) noexcept;
    status release(call_id id) noexcept;
    status release_inline(call_id id) noexcept;
    result<std::span<tensor>, status> tensors(const call_outcome& of, std::span<tensor> room) noexcept;
    result<std::span<const metadata_entry>, status> metadata(const call_outcome& of, metadata_room& room) noexcept;
    /// For as long as a completion or a call in parts refers to it.
    void hold() noexcept { ++holders_; }
    void let_go() noexcept {
        --holders_;
        if (ended_) [[unlikely]]
            end_with_last();
    }
    std::size_t wait(std::span<completion> out, nanoseconds timeout) noexcept;
    /// Waits for this call alone and takes its completion; it ends by its deadline at the latest.
    completion wait_for(call_id id) noexcept;
    /// Waits for the next part of this call alone, or its end, and takes it. `again`: none came in time.
    /// `invalid_state`: the call has ended, and its end was taken.
    status wait_for_part(call_id call, nanoseconds timeout, completion& out) noexcept;
    /// As `begin_part`, but waits for a free slot.
    result<call_view, status> wait_to_begin_part(call_id call, nanoseconds timeout) noexcept;
    /// Cancels a call in parts, and releases what has arrived of it and its end. Waits for lent memory.
    void end_parts(call_id call) noexcept;
    bool arm() noexcept;
    /// When a slot has waited for its late answer for `quarantine_timeout`; `begin` then ends the session, if it may.
    [[nodiscard]] nanoseconds quarantine_ends() const noexcept;
    /// For the time of one of the application's calls, which no other thread may make meanwhile.
    [[nodiscard]] sole_use::visit enter(const char* function) noexcept { return users_.enter(function); }

    // Control path.
    /// For good. Waits for lent memory, within `close_timeout` and a second.
    void close() noexcept;
    /// Closes it, and deletes it when it has no holder any more.
    void end() noexcept;
    [[nodiscard]] result<target> resolve(std::string_view name) const;
    [[nodiscard]] result<std::vector<std::string>> targets() const;
    [[nodiscard]] result<health_state> health(std::string_view name) const;
    /// The same without the channel, which may go on meanwhile.
    [[nodiscard]] static result<target> resolve(const connect_request& over, std::string_view name);
    [[nodiscard]] int event_fd() noexcept {
        life_.be_watched();
        return wakeups_.fd();
    }
    [[nodiscard]] const connect_request& request() const noexcept { return request_; }
    /// True for a connection that is good, in the process that made it.
    [[nodiscard]] bool connected() const noexcept { return life_.connected(); }
    /// True in a child of the process that made it.
    [[nodiscard]] bool inherited() const noexcept { return life_.inherited(); }
    [[nodiscard]] channel_statistics statistics() const noexcept;
    /// Nothing is begun, in flight or unread, and no late answer is awaited.
    [[nodiscard]] bool idle() const noexcept { return slots_.all_free(); }
    /// The same but for late answers.
    [[nodiscard]] bool has_no_calls() const noexcept { return slots_.free() + late() == slots_.count(); }
    /// Place of the server among several hosts of the URI.
    [[nodiscard]] std::size_t host() const noexcept;
    [[nodiscard]] channel_event take_event() noexcept { return life_.take_event(); }
    [[nodiscard]] std::string_view last_error() const noexcept { return last_error_; }
    /// Another channel takes its place when its session ends.
    void be_replaceable() noexcept { replaceable_ = true; }
    /// The server has said that it takes no calls.
    void leave() noexcept {
        if (connected()) life_.leave(status::closed);
    }

  private:
    /// The sizes and the target in the header of a request.
    struct request_shape {
        std::size_t length = 0;
        std::size_t room = 0;  ///< for the response
        std::uint32_t target = 0;
    };

    // Sending (submit.cpp).
    template <class Submit>
    [[nodiscard]] status intercept(call_id id, std::size_t length, const submit_options& options,
                                   Submit submit) noexcept;
    [[nodiscard]] status ask_interceptors(outgoing_call& call, std::size_t& seen) noexcept;
    [[nodiscard]] static std::uint64_t next_number() noexcept;
    [[nodiscard]] static submit_options changed_by(const outgoing_call& call, const submit_options& asked) noexcept;
    void tell_interceptors(const call_outcome& ended) const noexcept;
    void tell_interceptors(const call_outcome& ended, std::size_t seen) const noexcept;
    void end_interceptions() noexcept;
    [[nodiscard]] call_view view_of(const channel_slot& slot) const noexcept {
        return {slot.content.id, {slot.header + header_bytes, request_.options.request_bytes}};
    }
    result<call_view, status> begin_late() noexcept;
    status make_room(const submit_options& options) noexcept;
    status make_room(std::uint32_t parts) noexcept;
    bool leave_late_answers(std::uint32_t wanted) noexcept;
    status check_submit(const channel_slot* slot, std::size_t length, const submit_options& options) const noexcept;
    void stamp(channel_slot& slot, nanoseconds submitted, const request_shape& shape,
               const submit_options& options) const noexcept;
    status accept_sent(channel_slot& slot, bool lends, const submit_options& options) noexcept;
    void accept(channel_slot& slot, const submit_options& options) noexcept;
    status settle_submission(status outcome) noexcept;
    /// Calls of the backlog leave before later ones.
    [[nodiscard]] bool queues_after_others() const noexcept { return detours_ && !backlog_.empty(); }
    status hold_back(channel_slot& slot, const outgoing& message, status unsent,
                     const submit_options& options) noexcept;

    // … and what few calls have: lent memory, tensors, a target, a trace, parts, ranges, a copy to or from a device.
    status submit_more(channel_slot& slot, outgoing message, const submit_options& options) noexcept;
    [[nodiscard]] status check_more(const submit_options& options) noexcept;
    [[nodiscard]] status check_parts(const submit_options& options) noexcept;
    [[nodiscard]] status describe(outgoing& message, const submit_options& options) noexcept;
    void add_trace(channel_slot& slot, outgoing& message, const submit_options& options) const noexcept;
    void add_baggage(outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status add_metadata(outgoing& message, const submit_options& options) noexcept;
    [[nodiscard]] std::span<std::byte> bring_into_slot(outgoing& message, std::size_t more) noexcept;
    [[nodiscard]] status gather(channel_slot& slot, const submit_options& options, outgoing& out) noexcept;
    [[nodiscard]] status keep_scattered(outgoing& message, const submit_options& options) noexcept;
    [[nodiscard]] bool is_staged(const region_state* lent, bool written) const noexcept;
    [[nodiscard]] std::size_t response_room(const channel_slot& slot, const submit_options& options) const noexcept;
    void stamp_more(channel_slot& slot, const outgoing& message, const submit_options& options) const noexcept;
    [[nodiscard]] status hand_over(const outgoing& message) noexcept;
    status submit_in_parts(channel_slot& slot, const outgoing& message, const submit_options& options) noexcept;
    status refuse_part(call_id call) noexcept;
    status submit_staged(channel_slot& slot, const outgoing& message, staged_parts staged,
                         const submit_options& options) noexcept;

    // Receiving (receive.cpp).
    /// Room for completions, without those that the application has left there.
    completion_room room_in(std::span<completion> out) noexcept {
        if (holders_ > 0) [[unlikely]]
            release_left(out);
        return {out.data(), out.size()};
    }
    static void release_left(std::span<completion> out) noexcept;
    /// The next completion owns the slot that it is filled from.
    call_outcome& next_of(completion_room& out) noexcept {
        --out.left;
        completion& next = *out.next++;
        if (next.owner_ != nullptr) [[unlikely]]  // another channel's
            next.release();
        next.owner_ = this;
        hold();
        return next;
    }
    /// Takes what the transport has, then what time and the control plane say. Answers go straight into `out`, as far
    /// as there is room and none is waiting before them.
    void progress(completion_room& out) noexcept;
    void progress_inline(completion_room& out) noexcept;
    bool take_events(completion_room& out) noexcept;
    [[nodiscard]] bool fits(const link_event& event) const noexcept;
    [[nodiscard]] bool is_sane(const link_event& event) const noexcept;
    [[nodiscard]] bool on_response(const link_event& event, nanoseconds at, completion_room& out) noexcept;
    [[nodiscard]] bool take_response(const link_event& event, nanoseconds at, completion_room& out) noexcept;
    [[nodiscard]] bool on_unusual_response(const link_event& event, nanoseconds at, completion_room& out) noexcept;
    [[nodiscard]] std::uint16_t metadata_after_response(const link_event& event) noexcept;
    [[nodiscard]] bool on_other_response(const link_event& event, nanoseconds at) noexcept;
    [[nodiscard]] bool on_staged_response(channel_slot& slot, const link_event& event, nanoseconds at) noexcept;
    [[nodiscard]] bool scatter(channel_slot& slot, const link_event& event) noexcept;
    void on_late_response(channel_slot& slot, const slot_header& header) noexcept;
    void on_event(const link_event& event) noexcept;
    completion_room hand_out(completion_room out) noexcept;
    void follow_detours() noexcept;
    [[nodiscard]] bool link_takes_calls() const noexcept;
    bool expire() noexcept;
    [[nodiscard]] bool end_late_calls() noexcept;
    void end_late(channel_slot& slot) noexcept;
    void end_early(channel_slot& slot, status why, nanoseconds at, std::uint32_t code = 0) noexcept;
    status release_other(channel_slot& slot) noexcept;
    void release_response(channel_slot& slot) noexcept;
    [[nodiscard]] bool hold_responses(std::uint32_t epoch) const noexcept;
    completion_room end_session(completion_room out) noexcept;
    completion_room leave_session(completion_room out) noexcept;
    void take_rest(completion_room& out) noexcept;

    // Waiting (wait.cpp).
    void look(completion_room& out, nanoseconds timeout) noexcept;
    [[nodiscard]] nanoseconds next_look() const noexcept;
    void sleep(nanoseconds deadline) noexcept;
    template <class Done>
    void spin_then_sleep(completion_room& out, nanoseconds deadline, Done done) noexcept;

    // The end of a connection (loss.cpp).
    [[nodiscard]] bool doubt(status why) noexcept;
    [[nodiscard]] bool doubt_unsent(status why) noexcept;
    void lose(status why) noexcept;
    void end_all() noexcept;
    void settle(nanoseconds at) noexcept;
    void settle_all() noexcept;
    void close_lost(nanoseconds deadline) noexcept;
    void end_with_last() noexcept;
    void warn_of_end(std::string_view why) const noexcept;

    /// The application's call fails, for this reason (static storage).
    status fail(status code, std::string_view why) noexcept {
        last_error_ = why;
        return code;
    }
    /// The same for the usual reason of this status.
    status fail(status code) noexcept;
    /// Its completion has been handed out.
    [[gnu::always_inline]] void count(const channel_slot& slot, const call_outcome& out) noexcept {
        if (metrics_ != nullptr) metrics_->count(out, slot.asked);
        if (intercepted_ && !out.more) [[unlikely]]
            tell_interceptors(out);
    }
    /// Bytes of a list of ranges were copied from or to a slot.
    void count_copied(std::size_t bytes) noexcept {
        if (metrics_ != nullptr) metrics_->count_copied(bytes);
    }
    /// Slots that wait for a late answer.
    [[nodiscard]] std::uint32_t quarantined() const noexcept { return static_cast<std::uint32_t>(quarantined_.read()); }
    /// … and those of parts.
    [[nodiscard]] std::uint32_t late() const noexcept {
        return quarantined() + parts_.left_behind() + request_parts_.left_behind();
    }

    connect_request request_;  ///< names the server of the connection in use
    event_set wakeups_;
    channel_lifecycle life_;
    channel_slots slots_;
    call_backlog backlog_;
    channel_staging staging_;
    part_reader parts_;
    part_writer request_parts_;
    range_lists gathered_;   ///< the ranges of requests
    range_lists scattered_;  ///< … and of responses
    bool detours_ = false;   ///< a call may wait in `backlog_` or `staging_`, or a loss for its reason
    bool replaceable_;
    bool intercepted_;      ///< calls are shown to interceptors
    std::uint64_t number_;  ///< for them, in this process
    counter submitted_;
    counter quarantined_;  ///< now
    std::uint64_t stale_ = 0;
    bool ended_ = false;                       ///< it goes with the last holder
    std::uint32_t holders_ = 0;                ///< completions that own slots, and calls in parts
    std::unique_ptr<client_metrics> metrics_;  ///< null: nothing is counted
    std::array<link_event, 32> events_;        ///< of the poll under way
    ticking_clock clock_;
    nanoseconds now_{};  ///< read once a poll
    spinner spinner_;
    std::string_view last_error_;
    [[no_unique_address]] sole_use users_;
};

}  // namespace accel::core
