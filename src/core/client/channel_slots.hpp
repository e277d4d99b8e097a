// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"
#include "core/clock.hpp"
#include "core/metrics/client_metrics.hpp"

#include <accel_transport/completion.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::core {

/// Life of a client's slot: free → begun → in_flight → [settling] → done → taken → free,
/// or → quarantined while the server still owes an answer. A call whose response comes in parts is `in_parts` instead
/// of `in_flight`. A part's own slot: free → lent → [early] → done → taken → lent …, or → free; of a request: free →
/// part_begun → part_sent → free.
enum class slot_state : std::uint8_t {
    free,
    begun,        ///< the application writes its request
    in_flight,    ///< submitted
    settling,     ///< ended early, but the transport still touches memory that the application lent
    done,         ///< completed, waiting for poll
    taken,        ///< completion handed out, waiting for release
    quarantined,  ///< released, but a late answer may still arrive
    in_parts,     ///< submitted; parts of its response may arrive (`part_reader`)
    lent,         ///< to the server, for a part of another call's response
    early,        ///< has a part that waits for those before it
    part_begun,   ///< the application writes a part of another call's request
    part_sent,    ///< until the server gives the slot back (`part_writer`)
};

/// A call without a completion, whose memory the transport may use as it needs.
[[nodiscard]] constexpr bool is_awaited(slot_state state) noexcept {
    return state == slot_state::in_flight || state == slot_state::in_parts;
}

struct alignas(64) channel_slot {
    slot_state state = slot_state::free;
    bool owed = false;                 ///< the server still has to answer this generation
    bool lent = false;                 ///< the payload or the response's room belongs to the application
    bool staged = false;               ///< its bytes go through `channel_staging`
    bool scatters = false;             ///< its response is copied into a list of ranges
    bool holds_response = false;       ///< the link has to be told when the response is released
    std::uint16_t metadata_bytes = 0;  ///< after the response of `metadata_of`
    std::uint32_t epoch = 0;           ///< of the connection that carries it
    std::uint32_t elsewhere = 0;  ///< generation of the last call whose response was wanted on a device or in ranges
    std::byte* header = nullptr;  ///< of its request, set once by the channel; the payload lies behind it
    asked_for asked;
    nanoseconds submitted{};
    nanoseconds deadline{};  ///< while it is settling: by when lent memory has to be free
    call_outcome content;
    trace_context trace;  ///< of the last call that had one
    const std::byte* metadata_at = nullptr;
    std::uint32_t metadata_of = 0;  ///< generation of the last call whose response was followed by metadata

    /// The options of the request that the server sees. As one number, which takes one store.
    void ask(std::size_t length, std::uint32_t target) noexcept {
        static_assert(max_payload_bytes <= 0xFFFF'FFFF);
        asked = std::bit_cast<asked_for>(length | std::uint64_t{target} << 32);
    }
    /// The link has taken the request.
    void set_delivered(const outgoing& message, std::uint32_t connection) noexcept {
        owed = true;
        lent = message.lends();
        epoch = connection;
    }
    /// The call ends without a response.
    void fail(status why, nanoseconds at, std::uint32_t code = 0) noexcept {
        content.status = why;
        content.more = false;
        content.code = code;
        content.call = content.id;
        content.response = {};
        content.timeline = {};
        content.timeline.total = at - submitted;
    }
    /// Writes the outcome of an answered call: all of it, whatever was there.
    void fill(call_outcome& out, const link_event& event, nanoseconds at, nanoseconds clock_offset) const noexcept;
};

/// A difference of clocks of two hosts may come out below zero.
[[nodiscard]] inline nanoseconds not_negative(nanoseconds value) noexcept {
    return std::max(value, nanoseconds{0});
}

[[gnu::always_inline]] inline void channel_slot::fill(call_outcome& out, const link_event& event, nanoseconds at,
                                                      nanoseconds clock_offset) const noexcept {
    const slot_header& from = event.header;
    out.id = content.id;
    out.call = content.id;
    out.status = from.code;
    out.more = false;
    out.code = from.application_code;
    out.tag = content.tag;
    out.trace_id = content.trace_id;
    out.trace = content.trace;
    out.response = event.payload;
    const nanoseconds total = at - submitted;
    const nanoseconds server = from_ticks(from.server_ticks);
    // What the server says may be any number: unsigned ones have no overflow.
    const auto since = static_cast<std::uint64_t>(from.arrival_ns) - static_cast<std::uint64_t>(clock_offset.count()) -
                       static_cast<std::uint64_t>(submitted.count());
    const nanoseconds request = std::min(not_negative(nanoseconds{static_cast<std::int64_t>(since)}), total);
    out.timeline.total = total;
    out.timeline.request = request;
    out.timeline.queue = from_ticks(from.queue_ticks);
    out.timeline.copy = from_ticks(from.copy_ticks);
    out.timeline.preprocessing = from_ticks(from.preprocessing_ticks);
    out.timeline.inference = from_ticks(from.inference_ticks);
    out.timeline.response = not_negative(total - request - server);
    out.timeline.server = server;
}

/// The slots of a channel: free list, queue of finished calls, deadlines. No allocation after construction.
class channel_slots {
  public:
    explicit channel_slots(std::uint32_t count) : count_(count), slots_(count), free_(count), done_(count) {
        for (std::uint32_t i = count; i-- > 0;) {
            slots_[i].content.id.slot = i;
            put_free(slots_[i]);
        }
    }

    [[nodiscard]] std::uint32_t count() const noexcept { return count_; }
    [[nodiscard]] bool all_free() const noexcept { return free_count_ == count_; }
    [[nodiscard]] channel_slot& operator[](std::uint32_t i) noexcept { return slots_[i]; }
    /// The slot of a current id, or null.
    [[nodiscard]] channel_slot* find(call_id id) noexcept {
        // As one number, which takes fewer instructions.
        const auto number = std::bit_cast<std::uint64_t>(id);
        const auto index = static_cast<std::uint32_t>(number);
        if (index >= count_) return nullptr;
        channel_slot& slot = slots_[index];
        return std::bit_cast<std::uint64_t>(slot.content.id) == number ? &slot : nullptr;
    }
    /// Takes a free slot under its next generation, or null.
    [[nodiscard]] channel_slot* take_free() noexcept {
        if (free_count_ == 0) return nullptr;
        channel_slot& slot = slots_[free_[--free_count_]];
        slot.state = slot_state::begun;
        renew(slot);
        return &slot;
    }
    [[nodiscard]] std::uint32_t free() const noexcept { return free_count_; }
    /// The next generation of a slot that stays taken.
    static void renew(channel_slot& slot) noexcept {
        if (++slot.content.id.generation == 0) slot.content.id.generation = 1;
    }
    void put_free(channel_slot& slot) noexcept {
        slot.state = slot_state::free;
        free_[free_count_++] = slot.content.id.slot;
    }

    void set_in_flight(channel_slot& slot) noexcept {
        slot.state = slot_state::in_flight;
        next_deadline_ = std::min(next_deadline_, slot.deadline);
        ++open_;
    }
    void set_deadline(channel_slot& slot, nanoseconds when) noexcept {
        slot.deadline = when;
        next_deadline_ = std::min(next_deadline_, when);
    }
    /// A part is ready for `take_done`. Its call goes on.
    void push_part(channel_slot& part) noexcept { push_done(part); }
    /// A call has ended, but its completion waits for lent memory, until `deadline`.
    void set_settling(channel_slot& slot, nanoseconds deadline) noexcept {
        slot.state = slot_state::settling;
        set_deadline(slot, deadline);
    }
    /// Ends a call: its completion is ready for `take_done`.
    void finish(channel_slot& slot) noexcept {
        close_one();
        push_done(slot);
    }
    /// Ends a call whose completion goes straight to the application. Only while none is ready.
    void finish_taken(channel_slot& slot) noexcept {
        close_one();
        slot.state = slot_state::taken;
    }
    /// The oldest finished call, now `taken`; null if there is none.
    [[nodiscard]] channel_slot* take_done() noexcept {
        if (done_count_ == 0) return nullptr;
        channel_slot& slot = slots_[done_[done_head_]];
        if (++done_head_ == count_) done_head_ = 0;
        --done_count_;
        slot.state = slot_state::taken;
        return &slot;
    }
    /// One finished call out of order (for the blocking call).
    void take_done(channel_slot& slot) noexcept {
        // Rotates the ring once, leaving out this one: the order of the others stays.
        for (std::uint32_t left = done_count_; left > 0; --left) {
            channel_slot* oldest = take_done();
            if (oldest != &slot) push_done(*oldest);
        }
        slot.state = slot_state::taken;
    }

    /// The oldest finished part of this call, or the call itself; null if there is none.
    [[nodiscard]] channel_slot* find_done(call_id call) noexcept {
        for (std::uint32_t i = 0; i < done_count_; ++i) {
            const std::uint32_t at = done_head_ + i;
            channel_slot& slot = slots_[done_[at < count_ ? at : at - count_]];
            if (slot.content.call == call) return &slot;
        }
        return nullptr;
    }

    /// Submitted calls without a completion (in flight or settling).
    [[nodiscard]] std::uint32_t open() const noexcept { return open_; }
    [[nodiscard]] std::uint32_t ready() const noexcept { return done_count_; }
    /// No deadline of an open call is earlier than this.
    [[nodiscard]] nanoseconds next_deadline() const noexcept { return next_deadline_; }
    void set_next_deadline(nanoseconds when) noexcept { next_deadline_ = when; }
    std::span<channel_slot> all() noexcept { return slots_; }
    [[nodiscard]] std::span<const channel_slot> all() const noexcept { return slots_; }

  private:
    void close_one() noexcept {
        if (--open_ == 0) next_deadline_ = never;
    }
    void push_done(channel_slot& slot) noexcept {
        slot.state = slot_state::done;
        std::uint32_t tail = done_head_ + done_count_++;
        if (tail >= count_) tail -= count_;
        done_[tail] = slot.content.id.slot;
    }

    std::uint32_t count_;
    std::vector<channel_slot> slots_;
    std::vector<std::uint32_t> free_;  ///< a stack: the slot used last is the warmest
    std::uint32_t free_count_ = 0;
    std::vector<std::uint32_t> done_;  ///< a ring of `count` entries
    std::uint32_t done_head_ = 0;
    std::uint32_t done_count_ = 0;
    std::uint32_t open_ = 0;
    nanoseconds next_deadline_ = never;
};

}  // namespace accel::core
