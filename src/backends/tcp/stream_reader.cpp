// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/stream_reader.hpp"

#include "backends/tcp/wire.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace accel::tcp {

using core::fragment_header;
using core::message_kind;
using core::slot_header;

stream_reader::stream_reader(message_kind kind, std::shared_ptr<core::slot_memory> slots)
    : kind_(kind), slots_(std::move(slots)), places_(slots_->count()) {
    for (place& p : places_) p.state = kind_ == message_kind::request ? phase::open : phase::closed;
}

void stream_reader::expect(std::uint32_t slot, std::uint32_t generation, std::span<std::byte> into) noexcept {
    place& p = places_[slot];
    p = place{};
    p.into = into.empty() ? nullptr : into.data();
    p.room = std::min<std::uint64_t>(into.size(), slots_->capacity());
    p.generation = generation;
    p.state = phase::open;
}

void stream_reader::expect_scattered(std::uint32_t slot, std::uint32_t generation,
                                     std::span<const core::lent_range> ranges, std::uint64_t room) noexcept {
    expect(slot, generation, {});
    places_[slot].ranges = ranges;
    places_[slot].room = std::min<std::uint64_t>(room, slots_->capacity());
}

void stream_reader::redirect(std::uint32_t slot) noexcept {
    place& p = places_[slot];
    if ((p.into == nullptr && p.ranges.empty()) || p.state == phase::closed) return;
    std::byte* const room = slots_->payload(slot);
    if (p.state == phase::receiving && p.received > 0) {
        if (p.into != nullptr)
            std::memcpy(room, p.into, p.received);
        else
            core::range_cursor{}.copy_out(p.ranges, room, p.received);
    }
    p.into = nullptr;
    p.ranges = {};
    if (section_ == section::payload && current_ == slot && p.state == phase::receiving) target_ = room + p.received;
}

void stream_reader::consumed(std::uint32_t slot) noexcept {
    if (kind_ == message_kind::request && places_[slot].state == phase::closed) places_[slot].state = phase::open;
}

void stream_reader::targets(read_targets& out, std::size_t most) noexcept {
    if (begin_ > 0) {
        // At most a part of a header is left.
        std::memmove(staging_.data(), staging_.data() + begin_, staged());
        end_ -= begin_;
        begin_ = 0;
    }
    if (left_ > 0) target_ != nullptr ? out.add(target_, left_) : aim_at_ranges(out, most);
    // The bytes behind the section, if all of the section is named.
    if (out.bytes == left_ && out.count < most) out.add(staging_.data() + end_, staging_.size() - end_);
}

/// The ranges of what is left of the payload, as many as one read is likely to fill.
void stream_reader::aim_at_ranges(read_targets& out, std::size_t most) const noexcept {
    const place& p = places_[current_];
    core::range_cursor at = p.at;
    while (out.bytes < left_ && out.bytes < read_targets::enough_bytes && out.count < most) {
        const std::span<std::byte> piece = at.take(p.ranges, left_ - out.bytes);
        out.add(piece.data(), piece.size());
    }
}

void stream_reader::received(std::size_t count) noexcept {
    const std::size_t direct = std::min(count, left_);
    advance(direct);
    end_ += count - direct;
}

void stream_reader::advance(std::size_t count) noexcept {
    left_ -= count;
    if (target_ != nullptr)
        target_ += count;
    else
        places_[current_].at.skip(places_[current_].ranges, count);
    if (section_ == section::payload) places_[current_].received += count;
}

/// Takes what is staged of the current section.
void stream_reader::unstage(std::size_t count) noexcept {
    const std::byte* const from = staging_.data() + begin_;
    if (target_ != nullptr) {
        std::memcpy(target_, from, count);
    } else {
        core::range_cursor at = places_[current_].at;
        at.copy_in(places_[current_].ranges, from, count);
    }
    begin_ += count;
    advance(count);
}

stream_reader::outcome stream_reader::next(arrival& out) noexcept {
    for (;;) {
        step result = step::more;
        if (section_ == section::header) {
            result = read_header();
        } else if (left_ > 0) {
            if (staged() == 0) return outcome::nothing;
            unstage(std::min(left_, staged()));
        } else {
            result = section_ == section::extension ? after_extension() : after_payload();
        }
        switch (result) {
            case step::more:
                break;
            case step::starved:
                return outcome::nothing;
            case step::complete:
                finish(out);
                return outcome::message;
            case step::goodbye:
                return outcome::goodbye;
            case step::violation:
                return outcome::violation;
        }
    }
}

stream_reader::step stream_reader::read_header() noexcept {
    // Both kinds of header begin with version and kind.
    if (staged() < 2) return step::starved;
    const auto kind = static_cast<message_kind>(staging_[begin_ + 1]);
    if (kind == message_kind::fragment) return staged() < sizeof(fragment_header) ? step::starved : start_fragment();
    if (kind != kind_) return step::violation;
    return staged() < sizeof(slot_header) ? step::starved : start_message();
}

stream_reader::step stream_reader::start_message() noexcept {
    const slot_header h = core::read_header(staging_.data() + begin_);
    if (core::check_header(h, kind_) != status::ok || h.slot >= places_.size()) return step::violation;
    place& p = places_[h.slot];
    const bool fragmented = (h.flags & core::header_flag::fragmented) != 0;
    const bool scattered = !p.ranges.empty() && h.code == status::ok;
    const std::uint64_t room = p.into != nullptr || scattered ? p.room : slots_->capacity();
    const bool generation_fits = kind_ == message_kind::request || h.generation == p.generation;
    if (p.state != phase::open || !generation_fits || h.length > room || (fragmented && h.length == 0))
        return step::violation;
    begin_ += sizeof h;
    std::memcpy(slots_->header(h.slot), &h, sizeof h);
    p.state = phase::receiving;
    p.generation = h.generation;
    p.length = h.length;
    p.received = 0;
    p.at = {};
    if (!scattered) p.ranges = {};
    p.fragmented = fragmented;
    ++open_messages_;
    current_ = h.slot;
    section_ = section::extension;
    target_ = slots_->header(h.slot) - h.extension_bytes;
    left_ = h.extension_bytes;
    return step::more;
}

stream_reader::step stream_reader::start_fragment() noexcept {
    fragment_header f;
    std::memcpy(&f, staging_.data() + begin_, sizeof f);
    if (f.version != core::protocol_version || f.reserved != 0) return step::violation;
    if (is_goodbye(f) && kind_ == message_kind::request) return step::goodbye;
    if (f.slot >= places_.size()) return step::violation;
    const place& p = places_[f.slot];
    // A message that comes whole is closed before the next header is read: only fragmented ones are receiving.
    if (p.state != phase::receiving || p.generation != f.generation || f.length == 0 ||
        f.length > p.length - p.received)
        return step::violation;
    begin_ += sizeof f;
    current_ = f.slot;
    aim(f.length);
    return step::more;
}

stream_reader::step stream_reader::after_extension() noexcept {
    const place& p = places_[current_];
    if (p.fragmented) {
        section_ = section::header;
        return step::more;
    }
    aim(p.length);
    return step::more;
}

void stream_reader::aim(std::uint64_t length) noexcept {
    const place& p = places_[current_];
    std::byte* base = p.into != nullptr ? p.into : slots_->payload(current_);
    section_ = section::payload;
    target_ = p.ranges.empty() ? base + p.received : nullptr;
    left_ = length;
}

stream_reader::step stream_reader::after_payload() noexcept {
    const place& p = places_[current_];
    section_ = section::header;
    return p.received == p.length ? step::complete : step::more;
}

void stream_reader::finish(arrival& out) noexcept {
    place& p = places_[current_];
    out.header = core::read_header(slots_->header(current_));
    out.header.flags &= static_cast<std::uint16_t>(~core::header_flag::fragmented);
    std::byte* base = p.into != nullptr ? p.into : slots_->payload(current_);
    out.payload = {base, p.length};
    p.state = phase::closed;
    p.into = nullptr;
    p.ranges = {};
    --open_messages_;
}

}  // namespace accel::tcp
