// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <endian.h>

namespace accel::softnic {

/// Unaligned read of a wire structure out of bytes. The caller has checked the size.
template <class T>
[[nodiscard]] T load_as(std::span<const std::byte> bytes) {
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

template <class T>
[[nodiscard]] std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace accel::softnic
