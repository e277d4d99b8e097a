// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/cursor.hpp"

#include <algorithm>
#include <cstring>

namespace accel::examples::serving::wire {
namespace {

constexpr unsigned longest_varint = 10;

}  // namespace

cursor::cursor(std::span<const slice> slices) noexcept : slices_(slices) {
    for (const slice& each : slices) left_ += each.size();
    skip_ended();
}

/// So that the first slice has bytes to read, if there are any.
void cursor::skip_ended() noexcept {
    while (!slices_.empty() && offset_ == slices_.front().size()) {
        slices_ = slices_.subspan(1);
        offset_ = 0;
    }
}

/// Within the first slice.
void cursor::advance(std::size_t count) noexcept {
    offset_ += count;
    left_ -= count;
    skip_ended();
}

bool cursor::take(std::uint64_t count, cursor& part) noexcept {
    if (count > left_) return false;
    part = *this;
    part.left_ = count;
    while (count > 0) {
        const std::uint64_t step = std::min<std::uint64_t>(count, rest().size());
        advance(static_cast<std::size_t>(step));
        count -= step;
    }
    return true;
}

bool cursor::copy(std::span<std::byte> to) noexcept {
    if (to.size() > left_) return false;
    while (!to.empty()) {
        const slice from = rest().first(std::min(to.size(), rest().size()));
        std::memcpy(to.data(), from.data(), from.size());
        advance(from.size());
        to = to.subspan(from.size());
    }
    return true;
}

bool cursor::varint(std::uint64_t& to) noexcept {
    to = 0;
    for (unsigned i = 0; i < longest_varint && left_ > 0; ++i) {
        const auto next = std::to_integer<std::uint64_t>(rest().front());
        advance(1);
        if (i + 1 == longest_varint && next > 1) return false;
        to |= (next & 0x7f) << (7 * i);
        if (next < 0x80) return true;
    }
    return false;
}

bool read_text(cursor from, std::size_t most, std::string& to) {
    if (from.size() > most) return false;
    to.resize(static_cast<std::size_t>(from.size()));
    return from.copy(std::as_writable_bytes(std::span{to}));
}

}  // namespace accel::examples::serving::wire
