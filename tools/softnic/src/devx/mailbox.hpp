// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace accel::softnic::devx {

/// Where a field stands in a mailbox: the offset in bits of its first (most significant) bit, and its width.
/// Mailboxes are big-endian, and fields up to 32 bits never cross a 32-bit word, as in the vendor's layouts.
struct field {
    std::uint32_t offset = 0;
    std::uint32_t bits = 0;

    /// The same field of a structure that begins `base` bits into the mailbox.
    [[nodiscard]] constexpr field at(std::uint32_t base) const { return {offset + base, bits}; }
};

/// A command that the program sent, copied in. Every byte is untrusted.
class mailbox_in {
  public:
    explicit mailbox_in(std::span<const std::byte> bytes) : bytes_(bytes) {}

    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    /// Zero where the mailbox is too short for the field.
    [[nodiscard]] std::uint64_t get(field what) const;
    [[nodiscard]] std::uint32_t get32(field what) const { return static_cast<std::uint32_t>(get(what)); }
    [[nodiscard]] bool flag(field what) const { return get(what) != 0; }
    /// Bytes of a field that is no number. Empty where the mailbox is too short.
    [[nodiscard]] std::span<const std::byte> bytes(field what) const;

  private:
    std::span<const std::byte> bytes_;
};

/// The answer, zero at first. Fields behind its end are dropped: the program asked for no more.
class mailbox_out {
  public:
    explicit mailbox_out(std::span<std::byte> bytes) : bytes_(bytes) {}

    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    void set(field what, std::uint64_t value);
    void set_bytes(field what, std::span<const std::byte> from);
    void clear();

  private:
    std::span<std::byte> bytes_;
};

}  // namespace accel::softnic::devx
