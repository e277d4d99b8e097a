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

/// The place of a call in a distributed trace: W3C Trace Context, level 2. All zeroes: no trace. Bytes are in the order
/// of the header `traceparent`.
struct trace_context {
    static constexpr std::uint8_t sampled = 1;    ///< of `flags`: the caller may have recorded the trace
    static constexpr std::uint8_t random_id = 2;  ///< of `flags`: at least the last 7 bytes of `trace_id` are random
    static constexpr std::size_t text_bytes = 55;

    std::array<std::uint8_t, 16> trace_id{};  ///< of the whole trace
    std::array<std::uint8_t, 8> parent_id{};  ///< of the span that makes the call
    std::uint8_t flags = 0;

    /// Neither id is all zeroes. Only valid contexts travel.
    [[nodiscard]] ACCEL_API bool valid() const noexcept;
    /// Reads the value of `traceparent`: "00-", 32 digits, "-", 16 digits, "-", 2 digits; letters in lower case.
    /// Rejects any other text, other versions, and ids of zeroes. Drops flags that version 00 does not define.
    [[nodiscard]] ACCEL_API static std::optional<trace_context> parse(std::string_view header) noexcept;
    /// The value of `traceparent`.
    [[nodiscard]] ACCEL_API std::string format() const;

    friend bool operator==(const trace_context&, const trace_context&) = default;
};
static_assert(sizeof(trace_context) == 25 && std::is_trivially_copyable_v<trace_context>);

/// Most bytes of W3C Baggage that travel with a call: the room in the header's extensions beside a trace.
inline constexpr std::size_t max_baggage_bytes = 144;

}  // namespace accel
