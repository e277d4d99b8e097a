// SPDX-License-Identifier: Apache-2.0
#include "core/trace_description.hpp"

#include "core/protocol.hpp"

#include <accel_transport/detail/wire/extension_copy.hpp>
#include <accel_transport/detail/wire/trace_extension.hpp>

#include <cstring>

namespace accel::core {

std::uint16_t write_trace(const extended_message& message, const trace_context& trace) noexcept {
    wire::trace_extension made;
    made.value = trace;
    const std::size_t bytes = message.extension_bytes + sizeof made;
    if (bytes + message.others > extension_room) return message.extension_bytes;
    std::memcpy(message.header - bytes, &made, sizeof made);
    return static_cast<std::uint16_t>(bytes);
}

result<trace_context, status> read_trace(const std::byte* header, std::uint32_t generation) noexcept {
    trace_context found;
    if (const status seen = wire::trace_before(header, generation, found); seen != status::ok) return seen;
    return found;
}

std::uint16_t write_baggage(const extended_message& message, std::string_view text) noexcept {
    const wire::extension_head head{wire::baggage_type, static_cast<std::uint16_t>(text.size()), 0};
    const std::size_t padded = (text.size() + 7) / 8 * 8;
    const std::size_t bytes = message.extension_bytes + sizeof head + padded;
    if (text.size() > max_baggage_bytes || bytes + message.others > extension_room) return message.extension_bytes;
    std::byte* const to = message.header - bytes;
    std::memcpy(to, &head, sizeof head);
    std::memset(to + sizeof head, 0, padded);
    std::memcpy(to + sizeof head, text.data(), text.size());
    return static_cast<std::uint16_t>(bytes);
}

result<std::string_view, status> read_baggage(const std::byte* header, std::uint32_t generation,
                                              std::span<char> room) noexcept {
    wire::extension_copy copy;
    if (const status seen = wire::copy_extensions(header, generation, copy); seen != status::ok) return seen;
    const std::byte* value = nullptr;
    std::uint16_t bytes = 0;
    const status seen = wire::find_extension(copy.bytes, copy.length, wire::baggage_type, value, bytes);
    if (seen != status::ok) return seen;
    if (bytes == 0 || bytes > max_baggage_bytes) return status::protocol_error;
    if (bytes > room.size()) return status::message_too_large;
    std::memcpy(room.data(), value, bytes);
    return std::string_view{room.data(), bytes};
}

}  // namespace accel::core
