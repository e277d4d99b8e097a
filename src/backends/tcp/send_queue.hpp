// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/lent_range.hpp"
#include "core/protocol.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace accel::tcp {

/// The pieces that one `sendmsg` hands to the OS.
struct send_batch {
    static constexpr std::size_t max_pieces = 1'024;     ///< IOV_MAX of Linux
    static constexpr std::size_t max_small_pieces = 64;  ///< of messages whose payload is one piece
    static constexpr std::size_t max_fragments = 16;

    std::array<iovec, max_pieces> pieces;
    /// Left uninitialised: a batch is made for each call.
    std::array<std::array<std::byte, sizeof(core::fragment_header)>, max_fragments> fragments;
    std::size_t count = 0;
    std::size_t fragment_count = 0;
    std::size_t bytes = 0;
    bool pinned = false;  ///< payload of one message only, to be sent with MSG_ZEROCOPY
    bool more = false;    ///< its payload follows in the next batch
};

/// Messages on their way out of one connection: a queue through the slots' own entries, so it never allocates
/// and is never full. A message leaves in records: whole, or header and fragments. Each takes one record and
/// goes to the end of the queue, so that short messages pass long ones.
class send_queue {
  public:
    static constexpr std::uint32_t none = 0xffff'ffff;

    explicit send_queue(std::uint32_t slots) : entries_(slots), gathered_(slots) {}

    [[nodiscard]] bool empty() const noexcept { return head_ == none; }
    /// True while a record is cut off in the middle.
    [[nodiscard]] bool mid_record() const noexcept { return record_sent_ > 0; }
    [[nodiscard]] bool busy(std::uint32_t slot) const noexcept { return entries_[slot].queued; }
    /// True while payload bytes that were lent are still to be sent.
    [[nodiscard]] bool lends(std::uint32_t slot) const noexcept { return entries_[slot].queued && entries_[slot].lent; }

    /// `header`: 64 bytes with extensions in front of them, in slot memory. Precondition: the slot is not
    /// busy.
    void push(std::uint32_t slot, std::byte* header, std::span<const std::byte> payload, bool lent,
              bool pinned) noexcept;
    /// The same with a lent payload in ranges, of `length` bytes together. The list stays until the message was sent or
    /// `unlend`.
    void push_gathered(std::uint32_t slot, std::byte* header, std::span<const core::lent_range> ranges,
                       std::size_t length, bool pinned) noexcept;
    /// Sends what is left of a lent payload from a copy at `room` instead.
    void unlend(std::uint32_t slot, std::byte* room) noexcept;
    /// Forgets everything.
    void clear() noexcept;

    /// The next bytes to send, at most about `max_bytes`. Precondition: not empty.
    void plan(send_batch& out, std::size_t max_bytes) const noexcept;
    /// Books up to `count` bytes of the last plan as sent, and takes them off it. Returns the slot of a
    /// message that is now sent as a whole, or `none` once `count` is 0: call it until then.
    [[nodiscard]] std::uint32_t book(std::size_t& count) noexcept;
    /// The slot whose record is next.
    [[nodiscard]] std::uint32_t front() const noexcept { return head_; }

  private:
    struct entry {
        std::byte* header = nullptr;
        const std::byte* payload = nullptr;
        std::uint64_t length = 0;
        std::uint64_t sent = 0;  ///< payload bytes of finished records
        std::uint32_t next = none;
        std::uint32_t generation = 0;
        std::uint16_t extension_bytes = 0;
        bool started = false;  ///< the header's record is finished
        bool queued = false;
        bool lent = false;
        bool pinned = false;
        bool gathered = false;  ///< the payload lies in ranges
    };
    struct gathered_payload {
        std::span<const core::lent_range> ranges;
        core::range_cursor at;  ///< of `entry::sent`
    };
    struct record {
        std::size_t head_bytes;
        std::size_t body_bytes;
    };

    [[nodiscard]] static bool fragmented(const entry& e) noexcept;
    [[nodiscard]] static record next_record(const entry& e) noexcept;
    static void add_head(send_batch& out, std::uint32_t slot, const entry& e, std::size_t body_bytes) noexcept;
    static void add_piece(send_batch& out, const void* data, std::size_t size) noexcept;
    static void add_record(send_batch& out, std::uint32_t slot, const entry& e) noexcept;
    static void skip(send_batch& out, std::size_t count) noexcept;
    [[nodiscard]] static std::size_t add_ranges(send_batch& out, std::span<const core::lent_range> ranges,
                                                core::range_cursor& at, std::size_t bytes) noexcept;
    void plan_gathered(send_batch& out, std::size_t max_bytes) const noexcept;
    void plan_pinned(send_batch& out) const noexcept;
    void append(std::uint32_t slot) noexcept;

    std::vector<entry> entries_;
    std::vector<gathered_payload> gathered_;
    std::uint32_t head_ = none;
    std::uint32_t tail_ = none;
    std::size_t record_sent_ = 0;  ///< bytes of the front's current record that are sent
};

}  // namespace accel::tcp
