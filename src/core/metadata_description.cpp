// SPDX-License-Identifier: Apache-2.0
#include "core/metadata_description.hpp"

#include "core/protocol.hpp"

#include <accel_transport/detail/wire/extension_copy.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace accel::core {
namespace {

/// Precedes key and value, which follow it without padding.
struct entry_head {
    std::uint16_t key_bytes = 0;
    std::uint16_t value_bytes = 0;
};
static_assert(sizeof(entry_head) == 4);

/// Says that metadata follows the payload.
struct metadata_after_extension {
    wire::extension_head head{metadata_after_type, sizeof(std::uint32_t), 0};
    std::uint32_t bytes = 0;  ///< of entries, at the end of what the header counts as payload
    std::uint32_t padding = 0;
};
static_assert(sizeof(metadata_after_extension) == metadata_after_bytes);

[[nodiscard]] bool is_key_character(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

[[nodiscard]] bool is_printable(char c) noexcept {
    return c >= ' ' && c <= '~';
}

[[nodiscard]] bool is_valid(const metadata_entry& one) noexcept {
    const bool good_key =
        !one.key.empty() && one.key.size() <= max_metadata_key_bytes && std::ranges::all_of(one.key, is_key_character);
    return good_key && (one.key.ends_with("-bin") || std::ranges::all_of(one.value, is_printable));
}

/// Whether `next` is valid after the entries before it.
[[nodiscard]] bool may_follow(std::span<const metadata_entry> before, const metadata_entry& next) noexcept {
    return before.size() < max_metadata_entries && is_valid(next) && !find_metadata(before, next.key);
}

void write_entries(std::byte* to, std::span<const metadata_entry> list) noexcept {
    const auto put = [&to](const void* from, std::size_t bytes) {
        if (bytes > 0) std::memcpy(to, from, bytes);
        to += bytes;
    };
    for (const metadata_entry& each : list) {
        const entry_head head{static_cast<std::uint16_t>(each.key.size()),
                              static_cast<std::uint16_t>(each.value.size())};
        put(&head, sizeof head);
        put(each.key.data(), each.key.size());
        put(each.value.data(), each.value.size());
    }
}

/// Reads one entry off the front of a copy. False: it does not lie within.
[[nodiscard]] bool take_entry(std::string_view& from, metadata_entry& out) noexcept {
    entry_head head;
    if (from.size() < sizeof head) return false;
    std::memcpy(&head, from.data(), sizeof head);
    from.remove_prefix(sizeof head);
    if (from.size() < std::size_t{head.key_bytes} + head.value_bytes) return false;
    out = {from.substr(0, head.key_bytes), from.substr(head.key_bytes, head.value_bytes)};
    from.remove_prefix(out.key.size() + out.value.size());
    return true;
}

}  // namespace

std::size_t metadata_bytes(std::span<const metadata_entry> list) noexcept {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (!may_follow(list.first(i), list[i])) return 0;
        bytes += sizeof(entry_head) + list[i].key.size();
        if (list[i].value.size() > max_metadata_bytes || bytes + list[i].value.size() > max_metadata_bytes) return 0;
        bytes += list[i].value.size();
    }
    return bytes;
}

std::uint16_t write_metadata(const extended_message& message, std::span<const metadata_entry> list,
                             std::size_t bytes) noexcept {
    const wire::extension_head head{metadata_type, static_cast<std::uint16_t>(bytes), 0};
    const std::size_t padded = (bytes + 7) / 8 * 8;
    const std::size_t all = message.extension_bytes + sizeof head + padded;
    if (all + message.others > extension_room) return message.extension_bytes;
    std::byte* const to = message.header - all;
    std::memcpy(to, &head, sizeof head);
    std::memset(to + sizeof head, 0, padded);
    write_entries(to + sizeof head, list);
    return static_cast<std::uint16_t>(all);
}

std::uint16_t write_metadata_after(const extended_message& message, std::byte* payload_end,
                                   std::span<const metadata_entry> list, std::size_t bytes) noexcept {
    metadata_after_extension extension;
    extension.bytes = static_cast<std::uint32_t>(bytes);
    const std::size_t all = message.extension_bytes + sizeof extension;
    std::memcpy(message.header - all, &extension, sizeof extension);
    write_entries(payload_end, list);
    return static_cast<std::uint16_t>(all);
}

std::uint16_t metadata_after(const std::byte* header, std::uint32_t generation, std::size_t payload_bytes) noexcept {
    wire::extension_copy copy;
    if (wire::copy_extensions(header, generation, copy) != status::ok) return 0;
    const std::byte* value = nullptr;
    std::uint16_t length = 0;
    std::uint32_t bytes = 0;
    const status seen = wire::find_extension(copy.bytes, copy.length, metadata_after_type, value, length);
    if (seen != status::ok || length != sizeof bytes) return 0;
    std::memcpy(&bytes, value, sizeof bytes);
    const bool sane = bytes <= max_metadata_bytes && bytes <= payload_bytes;
    return sane ? static_cast<std::uint16_t>(bytes) : std::uint16_t{0};
}

result<std::span<const metadata_entry>, status> read_metadata(std::span<const std::byte> entries,
                                                              metadata_room& room) noexcept {
    if (entries.empty() || entries.size() > room.bytes.size()) return status::protocol_error;
    std::memcpy(room.bytes.data(), entries.data(), entries.size());
    std::string_view left{room.bytes.data(), entries.size()};
    std::size_t count = 0;
    while (!left.empty()) {
        metadata_entry next;
        if (!take_entry(left, next) || !may_follow(std::span{room.entries}.first(count), next))
            return status::protocol_error;
        room.entries[count++] = next;
    }
    return std::span<const metadata_entry>{room.entries}.first(count);
}

result<std::span<const metadata_entry>, status> read_metadata(const std::byte* header, std::uint32_t generation,
                                                              metadata_room& room) noexcept {
    wire::extension_copy copy;
    if (const status seen = wire::copy_extensions(header, generation, copy); seen != status::ok) return seen;
    const std::byte* value = nullptr;
    std::uint16_t length = 0;
    status seen = wire::find_extension(copy.bytes, copy.length, metadata_type, value, length);
    if (seen == status::ok) return read_metadata({value, length}, room);
    // That which follows the payload was taken off when the message arrived, if it was valid.
    if (seen == status::not_found)
        seen = wire::find_extension(copy.bytes, copy.length, metadata_after_type, value, length);
    return seen == status::ok ? status::protocol_error : seen;
}

}  // namespace accel::core
