// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_description.hpp"

#include "core/protocol.hpp"

#include <accel_transport/device/detail/wire/tensor_extension.hpp>

#include <algorithm>

namespace accel::core {

status describe_message(const described_message& message, std::span<const tensor> list,
                        std::uint16_t& extension_bytes) noexcept {
    extension_bytes = 0;
    if (list.empty() || list.size() > max_tensors) return status::invalid_argument;
    const std::size_t length = message.payload.size();
    if (!std::ranges::all_of(list, [length](const tensor& each) { return lies_within(each, length); }))
        return status::invalid_argument;
    const auto count = static_cast<std::uint32_t>(list.size());
    const std::size_t bytes = wire::tensor_extension_bytes(list.data(), count);
    if (message.version >= session_version::tensors && bytes <= extension_room - message.extensions) {
        wire::write_tensor_extension(message.header - bytes, list.data(), count);
        extension_bytes = static_cast<std::uint16_t>(bytes);
        return status::ok;
    }
    return message.on_host ? describe(message.payload, list) : status::unsupported;
}

status read_description(const std::byte* header, std::uint32_t generation, std::span<const std::byte> payload,
                        bool on_host, std::span<tensor> out, std::size_t& count) noexcept {
    const auto room = static_cast<std::uint32_t>(std::min<std::size_t>(out.size(), max_tensors));
    std::uint32_t found = 0;
    status read = wire::find_tensors_before(header, generation, payload.size(), out.data(), room, found);
    if (read == status::not_found)
        read = on_host ? tensors(payload.data(), payload.size(), out.data(), room, found) : status::unsupported;
    count = found;
    return read;
}

}  // namespace accel::core
