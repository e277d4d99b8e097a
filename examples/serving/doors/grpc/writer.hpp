// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace accel::examples::serving::wire {

/// Appends fields of a message to a text, in the order of the calls. Values that protobuf leaves out (0, false, empty)
/// are left out, except by `message`, `entry` and `present`.
class writer {
  public:
    void number(std::uint32_t field, std::uint64_t value);
    /// Of a field that has presence: written also when it is 0.
    void present(std::uint32_t field, std::uint64_t value);
    void text(std::uint32_t field, std::string_view value);
    /// One of a repeated field: written also when it is empty.
    void entry(std::uint32_t field, std::string_view value);
    void message(std::uint32_t field, const writer& value) { entry(field, value.bytes_); }
    void packed(std::uint32_t field, std::span<const std::uint64_t> values);
    /// Of a field whose `length` bytes follow what is written so far.
    void bytes_follow(std::uint32_t field, std::uint64_t length);

    [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::string take() noexcept { return std::move(bytes_); }

  private:
    void varint(std::uint64_t value);

    std::string bytes_;
};

}  // namespace accel::examples::serving::wire
