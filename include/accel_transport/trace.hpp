// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/config.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace accel {

/// Where a call belongs in a distributed trace: W3C Trace Context, level 2. All zeroes: in none. The bytes are in the
/// order in which the header `traceparent` writes them.
struct trace_context {
    static constexpr std::uint8_t sampled = 1;    ///< of `flags`: the caller may have recorded it
    static constexpr std::uint8_t random_id = 2;  ///< of `flags`: at least the last 7 bytes of `trace_id` are random
    static constexpr std::size_t text_bytes = 55;

    std::array<std::uint8_t, 16> trace_id{};  ///< of the whole trace
    std::array<std::uint8_t, 8> parent_id{};  ///< of the span that makes the call
    std::uint8_t flags = 0;

    /// Neither id is all zeroes. Only such a context travels.
    [[nodiscard]] ACCEL_API bool valid() const noexcept;
    /// Reads the value of `traceparent`: "00-", 32 digits, "-", 16 digits, "-", 2 digits, all of lower case. Nothing
    /// for any other text, another version, and ids of zeroes. Flags that version 00 does not know are dropped.
    [[nodiscard]] ACCEL_API static std::optional<trace_context> parse(std::string_view header) noexcept;
    /// The value of `traceparent`.
    [[nodiscard]] ACCEL_API std::string format() const;

    friend bool operator==(const trace_context&, const trace_context&) = default;
};
static_assert(sizeof(trace_context) == 25 && std::is_trivially_copyable_v<trace_context>);

/// Bytes of W3C Baggage that travel with a call: as many as the header's extensions have room for beside a trace.
inline constexpr std::size_t max_baggage_bytes = 144;

}  // namespace accel
