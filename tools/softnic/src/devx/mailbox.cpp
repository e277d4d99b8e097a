// SPDX-License-Identifier: Apache-2.0
#include "devx/mailbox.hpp"

#include <algorithm>
#include <cstring>

#include <endian.h>

namespace accel::softnic::devx {
namespace {

constexpr std::uint32_t word_bits = 32;

bool fits(std::size_t size_bytes, field what) {
    return (std::size_t{what.offset} + what.bits + 7) / 8 <= size_bytes;
}

std::uint32_t mask_of(std::uint32_t bits) {
    return bits == word_bits ? ~std::uint32_t{0} : (std::uint32_t{1} << bits) - 1;
}

/// Distance of the field from the least significant bit of its word.
std::uint32_t shift_of(field what) {
    return word_bits - what.bits - what.offset % word_bits;
}

field upper_half(field what) {
    return {what.offset, word_bits};
}
field lower_half(field what) {
    return {what.offset + word_bits, word_bits};
}

}  // namespace

std::uint64_t mailbox_in::get(field what) const {
    if (what.bits > word_bits) return get(upper_half(what)) << word_bits | get(lower_half(what));
    const field word{what.offset / word_bits * word_bits, word_bits};
    if (!fits(size(), word)) return 0;
    std::uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + word.offset / 8, sizeof value);
    return be32toh(value) >> shift_of(what) & mask_of(what.bits);
}

std::span<const std::byte> mailbox_in::bytes(field what) const {
    if (!fits(size(), what)) return {};
    return bytes_.subspan(what.offset / 8, what.bits / 8);
}

void mailbox_out::set(field what, std::uint64_t value) {
    if (what.bits > word_bits) {
        set(upper_half(what), value >> word_bits);
        set(lower_half(what), value & mask_of(word_bits));
        return;
    }
    const field word{what.offset / word_bits * word_bits, word_bits};
    if (!fits(size(), word)) return;
    std::byte* at = bytes_.data() + word.offset / 8;
    std::uint32_t whole = 0;
    std::memcpy(&whole, at, sizeof whole);
    const std::uint32_t mask = mask_of(what.bits) << shift_of(what);
    whole = (be32toh(whole) & ~mask) | (static_cast<std::uint32_t>(value) << shift_of(what) & mask);
    whole = htobe32(whole);
    std::memcpy(at, &whole, sizeof whole);
}

void mailbox_out::set_bytes(field what, std::span<const std::byte> from) {
    if (!fits(size(), what)) return;
    std::memcpy(bytes_.data() + what.offset / 8, from.data(), std::min<std::size_t>(what.bits / 8, from.size()));
}

void mailbox_out::clear() {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
}

}  // namespace accel::softnic::devx
