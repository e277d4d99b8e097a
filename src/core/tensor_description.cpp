// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_description.hpp"

#include "core/protocol.hpp"

#include <accel_transport/detail/wire/tensor_extension.hpp>

#include <algorithm>
#include <cstring>

namespace accel::core {
namespace {

[[nodiscard]] bool begins_with_table(std::span<const std::byte> payload) noexcept {
    decltype(accel::detail::tensor_table_head::magic) magic{};
    if (payload.size() < sizeof magic) return false;
    std::memcpy(&magic, payload.data(), sizeof magic);
    return magic == accel::detail::tensor_table_head::own_magic;
}

[[nodiscard]] result<std::span<tensor>, status> read_table(std::span<const std::byte> payload, bool on_host,
                                                           std::span<tensor> room) noexcept {
    if (!on_host) return status::unsupported;
    if (!begins_with_table(payload)) return status::not_found;
    return tensors(payload, room);
}

}  // namespace

status describe_message(const described_message& message, std::span<const tensor> list,
                        std::uint16_t& extension_bytes) noexcept {
    extension_bytes = 0;
    if (list.empty() || list.size() > max_tensors) return status::invalid_argument;
    const std::size_t length = message.payload.size();
    if (!std::ranges::all_of(list, [length](const tensor& each) { return lies_within(each, length); }))
        return status::invalid_argument;
    const auto count = static_cast<std::uint32_t>(list.size());
    const std::size_t bytes = wire::tensor_extension_bytes(list.data(), count);
    if (bytes <= extension_room - message.extensions) {
        wire::write_tensor_extension(message.header - bytes, list.data(), count);
        extension_bytes = static_cast<std::uint16_t>(bytes);
        return status::ok;
    }
    return message.on_host ? describe(message.payload, list) : status::unsupported;
}

result<std::span<tensor>, status> read_description(const std::byte* header, std::uint32_t generation,
                                                   std::span<const std::byte> payload, bool on_host,
                                                   std::span<tensor> room) noexcept {
    const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(room.size(), max_tensors));
    std::uint32_t count = 0;
    const status read = wire::find_tensors_before(header, generation, payload.size(), room.data(), most, count);
    if (read == status::not_found) return read_table(payload, on_host, room);
    if (read != status::ok) return read;
    return room.first(count);
}

}  // namespace accel::core
