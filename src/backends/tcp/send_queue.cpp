// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/send_queue.hpp"

#include "backends/tcp/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace accel::tcp {

using core::fragment_header;
using core::header_bytes;
using core::slot_header;

namespace {

/// At least so many: header, extensions, fragment's header, payload.
constexpr std::size_t pieces_of_a_record = 4;

}  // namespace

void send_queue::push(std::uint32_t slot, std::byte* header, std::span<const std::byte> payload, bool lent,
                      bool pinned) noexcept {
    slot_header h = core::read_header(header);
    entry& e = entries_[slot];
    e = entry{};
    e.header = header;
    e.payload = payload.data();
    e.length = payload.size();
    e.generation = h.generation;
    e.extension_bytes = h.extension_bytes;
    e.queued = true;
    e.lent = lent;
    e.pinned = pinned;
    if (fragmented(e)) {
        h.flags |= core::header_flag::fragmented;
        std::memcpy(header + offsetof(slot_header, flags), &h.flags, sizeof h.flags);
    }
    append(slot);
}

void send_queue::push_gathered(std::uint32_t slot, std::byte* header, std::span<const core::lent_range> ranges,
                               std::size_t length, bool pinned) noexcept {
    push(slot, header, {static_cast<const std::byte*>(nullptr), length}, true, pinned);
    entries_[slot].gathered = true;
    gathered_[slot] = {ranges, {}};
}

void send_queue::append(std::uint32_t slot) noexcept {
    entries_[slot].next = none;
    if (head_ == none)
        head_ = slot;
    else
        entries_[tail_].next = slot;
    tail_ = slot;
}

void send_queue::unlend(std::uint32_t slot, std::byte* room) noexcept {
    entry& e = entries_[slot];
    if (!e.queued || !e.lent) return;
    if (e.gathered)
        gathered_[slot].at.copy_out(gathered_[slot].ranges, room + e.sent, e.length - e.sent);
    else
        std::copy_n(e.payload + e.sent, e.length - e.sent, room + e.sent);
    e.payload = room;
    e.gathered = false;
    e.lent = false;
    e.pinned = false;
}

void send_queue::clear() noexcept {
    while (head_ != none) {
        entries_[head_].queued = false;
        head_ = entries_[head_].next;
    }
    record_sent_ = 0;
}

bool send_queue::fragmented(const entry& e) noexcept {
    return e.length > fragment_bytes;
}

send_queue::record send_queue::next_record(const entry& e) noexcept {
    const std::size_t message_head = e.started ? 0 : header_bytes + e.extension_bytes;
    const std::size_t fragment_head = fragmented(e) ? sizeof(fragment_header) : 0;
    return {message_head + fragment_head, std::min<std::size_t>(e.length - e.sent, fragment_bytes)};
}

void send_queue::add_piece(send_batch& out, const void* data, std::size_t size) noexcept {
    if (size == 0) return;
    out.bytes += size;
    if (out.count > 0) {
        iovec& last = out.pieces[out.count - 1];
        if (static_cast<const char*>(last.iov_base) + last.iov_len == data) {
            last.iov_len += size;
            return;
        }
    }
    out.pieces[out.count++] = {const_cast<void*>(data), size};
}

void send_queue::add_head(send_batch& out, std::uint32_t slot, const entry& e, std::size_t body_bytes) noexcept {
    if (!e.started) {
        add_piece(out, e.header, header_bytes);
        add_piece(out, e.header - e.extension_bytes, e.extension_bytes);
    }
    if (fragmented(e)) {
        fragment_header f;
        f.slot = slot;
        f.generation = e.generation;
        f.length = static_cast<std::uint32_t>(body_bytes);
        auto& place = out.fragments[out.fragment_count++];
        std::memcpy(place.data(), &f, sizeof f);
        add_piece(out, place.data(), place.size());
    }
}

void send_queue::add_record(send_batch& out, std::uint32_t slot, const entry& e) noexcept {
    const record r = next_record(e);
    add_head(out, slot, e, r.body_bytes);
    add_piece(out, e.payload + e.sent, r.body_bytes);
}

/// Takes the first `count` bytes off a plan.
void send_queue::skip(send_batch& out, std::size_t count) noexcept {
    out.bytes -= count;
    std::size_t gone = 0;
    while (count > 0 && count >= out.pieces[gone].iov_len) count -= out.pieces[gone++].iov_len;
    iovec& first = out.pieces[gone];
    first.iov_base = static_cast<char*>(first.iov_base) + count;
    first.iov_len -= count;
    std::move(out.pieces.begin() + static_cast<std::ptrdiff_t>(gone),
              out.pieces.begin() + static_cast<std::ptrdiff_t>(out.count), out.pieces.begin());
    out.count -= gone;
}

void send_queue::plan(send_batch& out, std::size_t max_bytes) const noexcept {
    out.count = out.fragment_count = out.bytes = 0;
    out.pinned = out.more = false;
    if (entries_[head_].pinned) return plan_pinned(out);
    if (entries_[head_].gathered) return plan_gathered(out, max_bytes);
    const auto room = [&] {
        return out.count + pieces_of_a_record <= send_batch::max_small_pieces &&
               out.fragment_count < send_batch::max_fragments && out.bytes < max_bytes;
    };
    const bool alone = entries_[head_].next == none;
    if (alone) {
        entry e = entries_[head_];
        do {
            add_record(out, head_, e);
            e.sent += next_record(e).body_bytes;
            e.started = true;
        } while (e.sent < e.length && room());
    } else {
        const auto joins = [&](const entry& e) { return !e.pinned && !e.gathered && room(); };
        for (std::uint32_t slot = head_; slot != none && joins(entries_[slot]); slot = entries_[slot].next)
            add_record(out, slot, entries_[slot]);
    }
    if (record_sent_ > 0) skip(out, record_sent_);
}

/// Adds the next `bytes` of the ranges, as far as there is room; returns how many.
std::size_t send_queue::add_ranges(send_batch& out, std::span<const core::lent_range> ranges, core::range_cursor& at,
                                   std::size_t bytes) noexcept {
    std::size_t added = 0;
    while (added < bytes && out.count < send_batch::max_pieces) {
        const std::span<std::byte> piece = at.take(ranges, bytes - added);
        add_piece(out, piece.data(), piece.size());
        added += piece.size();
    }
    return added;
}

/// A record may have more ranges than a batch has pieces: what is left of it goes into the next one. Alone in the queue
/// the message leaves in as many records as fit.
void send_queue::plan_gathered(send_batch& out, std::size_t max_bytes) const noexcept {
    entry e = entries_[head_];
    const gathered_payload& payload = gathered_[head_];
    core::range_cursor at = payload.at;
    std::size_t done = record_sent_;
    const auto goes_on = [&] {
        return e.next == none && e.sent < e.length && out.bytes < max_bytes &&
               out.fragment_count < send_batch::max_fragments && out.count + pieces_of_a_record <= out.max_pieces;
    };
    do {
        const record r = next_record(e);
        const std::size_t head_done = std::min(done, r.head_bytes);
        if (head_done < r.head_bytes) {
            add_head(out, head_, e, r.body_bytes);
            if (head_done > 0) skip(out, head_done);
        }
        const std::size_t body_done = done - head_done;
        at.skip(payload.ranges, body_done);
        if (add_ranges(out, payload.ranges, at, r.body_bytes - body_done) < r.body_bytes - body_done) return;
        e.sent += r.body_bytes;
        e.started = true;
        done = 0;
    } while (goes_on());
}

/// Header and payload leave separately: the OS goes on reading pinned bytes after the call, and a
/// fragment's header does not live that long.
void send_queue::plan_pinned(send_batch& out) const noexcept {
    const entry& e = entries_[head_];
    const record r = next_record(e);
    if (record_sent_ < r.head_bytes) {
        add_head(out, head_, e, r.body_bytes);
        out.more = true;
        if (record_sent_ > 0) skip(out, record_sent_);
        return;
    }
    const std::size_t done = record_sent_ - r.head_bytes;
    out.pinned = true;
    if (!e.gathered) return add_piece(out, e.payload + e.sent + done, r.body_bytes - done);
    core::range_cursor at = gathered_[head_].at;
    at.skip(gathered_[head_].ranges, done);
    static_cast<void>(add_ranges(out, gathered_[head_].ranges, at, r.body_bytes - done));
}

std::uint32_t send_queue::book(std::size_t& count) noexcept {
    while (count > 0) {
        const std::uint32_t slot = head_;
        entry& e = entries_[slot];
        const record r = next_record(e);
        const std::size_t step = std::min(count, r.head_bytes + r.body_bytes - record_sent_);
        count -= step;
        record_sent_ += step;
        if (record_sent_ < r.head_bytes + r.body_bytes) break;
        record_sent_ = 0;
        e.started = true;
        e.sent += r.body_bytes;
        if (e.gathered) gathered_[slot].at.skip(gathered_[slot].ranges, r.body_bytes);
        head_ = e.next;
        if (e.sent < e.length) {
            append(slot);
            continue;
        }
        e.queued = false;
        return slot;
    }
    return none;
}

}  // namespace accel::tcp
