// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace accel {

/// One key and its value, which travel with a request or with its answer. A key has 1 to `max_metadata_key_bytes`
/// lower-case letters, digits, `-`, `_` and `.`, and is unique in its message. A value is printable ASCII, perhaps
/// empty; if its key ends in `-bin`, it is any bytes, as in gRPC.
struct metadata_entry {
    std::string_view key;
    std::string_view value;
    friend bool operator==(const metadata_entry&, const metadata_entry&) = default;
};

inline constexpr std::size_t max_metadata_key_bytes = 64;
/// Entries of one message.
inline constexpr std::size_t max_metadata_entries = 32;
/// Bytes of all keys and values of one message, and 4 for each entry.
inline constexpr std::size_t max_metadata_bytes = 4'096;

/// Room for the metadata of any message: 5 KiB, which a reader may use again. What was read is a part of it.
struct metadata_room {
    std::array<metadata_entry, max_metadata_entries> entries;
    std::array<char, max_metadata_bytes> bytes;  ///< left uninitialised
};

/// The value of this key, if it is there.
[[nodiscard]] inline std::optional<std::string_view> find_metadata(std::span<const metadata_entry> list,
                                                                   std::string_view key) noexcept {
    const auto found = std::ranges::find(list, key, &metadata_entry::key);
    if (found == list.end()) return std::nullopt;
    return found->value;
}

}  // namespace accel
