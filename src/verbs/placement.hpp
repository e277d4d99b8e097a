#pragma once

#include "core/protocol.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

/// Where a response is to be placed: an extension of the request's header (docs/protocol.md, section 3).
namespace accel::verbs {

struct placement {
    std::uint64_t address = 0;
    std::uint64_t length = 0;  ///< bytes; 0: none, the response goes into its slot
    std::uint32_t key = 0;     ///< remote key
    std::uint32_t reserved = 0;
};

struct extension_head {
    std::uint16_t type = 0;
    std::uint16_t length = 0;  ///< of the value, bytes
    std::uint32_t reserved = 0;
};

inline constexpr std::uint16_t placement_type = 1;

struct placement_extension {
    extension_head head{placement_type, sizeof(placement), 0};
    placement value;
};
static_assert(sizeof(placement_extension) == 32 && std::is_trivially_copyable_v<placement_extension>);

/// Looks for a placement among a request's extensions. `out` stays as it is where there is none.
/// False: the bytes are no extensions.
[[nodiscard]] inline bool find_placement(std::span<const std::byte> extensions, placement& out) noexcept {
    while (!extensions.empty()) {
        extension_head head;
        if (extensions.size() < sizeof head) return false;
        std::memcpy(&head, extensions.data(), sizeof head);
        const std::size_t padded = (std::size_t{head.length} + 7) / 8 * 8;
        if (extensions.size() - sizeof head < padded) return false;
        if (head.type == placement_type) {
            if (head.length != sizeof out) return false;
            std::memcpy(&out, extensions.data() + sizeof head, sizeof out);
        }
        extensions = extensions.subspan(sizeof head + padded);
    }
    return true;
}

}  // namespace accel::verbs
