// SPDX-License-Identifier: Apache-2.0
#include "core/trace_description.hpp"

#include "core/protocol.hpp"

#include <accel_transport/device/detail/wire/extension_copy.hpp>
#include <accel_transport/device/detail/wire/trace_extension.hpp>

#include <cstring>

namespace accel::core {

std::uint16_t write_trace(const traced_message& message, const trace_context& trace) noexcept {
    wire::trace_extension made;
    made.value = trace;
    const std::size_t bytes = message.extension_bytes + sizeof made;
    if (message.version < session_version::traces || bytes + message.others > extension_room)
        return message.extension_bytes;
    std::memcpy(message.header - bytes, &made, sizeof made);
    return static_cast<std::uint16_t>(bytes);
}

status read_trace(const std::byte* header, std::uint32_t generation, trace_context& out) noexcept {
    return wire::trace_before(header, generation, out);
}

}  // namespace accel::core
