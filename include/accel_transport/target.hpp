// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// Targets let one server serve many models. `channel::resolve` resolves a target's name once, and requests carry the
/// number. Kernels use the numbers as well.
namespace accel {

/// The number of a target name. 0: a request without a target.
struct target {
    std::uint32_t number = 0;
    ACCEL_HOST_DEVICE friend constexpr bool operator==(target a, target b) noexcept { return a.number == b.number; }
};

/// Whether a server, or one of its targets, should be sent requests. The values are those of gRPC's health protocol.
enum class health_state : std::uint8_t {
    unknown = 0,      ///< the server has no such target, or its owner does not know
    serving = 1,      ///< the state of a target until somebody sets another
    not_serving = 2,  ///< set by its owner; or the server drains
};

inline constexpr std::size_t max_target_bytes = 64;  ///< longest name
inline constexpr std::size_t max_targets = 1024;     ///< per server

/// Whether a name is valid: 1 to 64 printable ASCII characters without blanks.
[[nodiscard]] constexpr bool is_target_name(std::string_view name) noexcept {
    if (name.empty() || name.size() > max_target_bytes) return false;
    for (const char c : name)
        if (c <= ' ' || c > '~') return false;
    return true;
}

namespace detail {
inline constexpr std::uint32_t fnv1a_start = 2'166'136'261U;
[[nodiscard]] ACCEL_HOST_DEVICE constexpr std::uint32_t fnv1a(std::uint32_t hash, char next) noexcept {
    return (hash ^ static_cast<unsigned char>(next)) * 16'777'619U;
}
}  // namespace detail

/// The target of a name: the name's FNV-1a hash, never 0. The number stays the same when the server is restarted, and
/// kernels compare it with `constexpr auto model = target_of("model")`. Clients call `channel::resolve` instead, which
/// also checks that the server has the target.
[[nodiscard]] constexpr target target_of(std::string_view name) noexcept {
    std::uint32_t hash = detail::fnv1a_start;
    for (const char c : name) hash = detail::fnv1a(hash, c);
    return {hash == 0 ? 1 : hash};
}
/// The same for a zero-terminated name; also in kernels.
[[nodiscard]] ACCEL_HOST_DEVICE constexpr target target_of(const char* name) noexcept {
    std::uint32_t hash = detail::fnv1a_start;
    for (; *name != '\0'; ++name) hash = detail::fnv1a(hash, *name);
    return {hash == 0 ? 1 : hash};
}

}  // namespace accel
