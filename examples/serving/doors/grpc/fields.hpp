// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/cursor.hpp"

#include <cstddef>
#include <cstdint>

namespace accel::examples::serving::wire {

/// How a field's value is written (protobuf, "Encoding").
enum class form : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, group_begin = 3, group_end = 4, fixed32 = 5 };

struct field {
    std::uint32_t number = 0;
    form how = form::varint;
    std::uint64_t value = 0;  ///< of varint, fixed32 and fixed64
    cursor bytes;             ///< of bytes: a text, a message, packed numbers

    [[nodiscard]] bool is(std::uint32_t wanted, form wanted_form) const noexcept {
        return number == wanted && how == wanted_form;
    }
};

/// Deepest nesting of groups, which no message of the protocol has: they are skipped.
inline constexpr std::size_t max_group_depth = 16;

/// The fields of a message, in their order. Ends at the end of the message, or where it is malformed.
class field_walk {
  public:
    explicit field_walk(const cursor& message) noexcept : from_(message) {}

    /// False: there is none.
    [[nodiscard]] bool next(field& to) noexcept;
    /// Only after `next` said false.
    [[nodiscard]] bool malformed() const noexcept { return malformed_; }

  private:
    [[nodiscard]] bool read(field& to) noexcept;
    [[nodiscard]] bool read_value(field& to) noexcept;
    [[nodiscard]] bool skip_group(std::uint32_t number) noexcept;

    cursor from_;
    bool malformed_ = false;
};

}  // namespace accel::examples::serving::wire
