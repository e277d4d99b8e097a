// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/fields.hpp"

#include <array>
#include <bit>
#include <span>

namespace accel::examples::serving::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "fixed numbers are little-endian, and are copied");

constexpr std::uint64_t largest_tag = (std::uint64_t{1} << 32) - 1;

bool read_fixed(cursor& from, std::size_t bytes, std::uint64_t& to) noexcept {
    to = 0;
    return from.copy(std::as_writable_bytes(std::span{&to, 1}).first(bytes));
}

}  // namespace

bool field_walk::next(field& to) noexcept {
    while (!malformed_ && from_.size() > 0) {
        malformed_ = !read(to);
        if (malformed_) return false;
        if (to.how != form::group_begin) return true;
        malformed_ = !skip_group(to.number);
    }
    return false;
}

/// A field's tag and value; of a group the tag alone.
bool field_walk::read(field& to) noexcept {
    std::uint64_t tag = 0;
    if (!from_.varint(tag) || tag > largest_tag) return false;
    to.number = static_cast<std::uint32_t>(tag >> 3);
    to.how = static_cast<form>(tag & 7);
    return to.number > 0 && to.how != form::group_end && read_value(to);
}

bool field_walk::read_value(field& to) noexcept {
    switch (to.how) {
        case form::varint:
            return from_.varint(to.value);
        case form::fixed64:
            return read_fixed(from_, 8, to.value);
        case form::fixed32:
            return read_fixed(from_, 4, to.value);
        case form::bytes:
            return from_.varint(to.value) && from_.take(to.value, to.bytes);
        case form::group_begin:
            return true;
        default:
            return false;
    }
}

/// Up to the end of this group; each group within it ends by its own number.
bool field_walk::skip_group(std::uint32_t number) noexcept {
    std::array<std::uint32_t, max_group_depth> open{number};
    std::size_t depth = 1;
    while (depth > 0) {
        std::uint64_t tag = 0;
        if (!from_.varint(tag) || tag > largest_tag) return false;
        field one;
        one.number = static_cast<std::uint32_t>(tag >> 3);
        one.how = static_cast<form>(tag & 7);
        if (one.number == 0) return false;
        if (one.how == form::group_end) {
            if (open[--depth] != one.number) return false;
        } else if (one.how == form::group_begin) {
            if (depth == max_group_depth) return false;
            open[depth++] = one.number;
        } else if (!read_value(one)) {
            return false;
        }
    }
    return true;
}

}  // namespace accel::examples::serving::wire
