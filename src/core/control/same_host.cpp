// SPDX-License-Identifier: Apache-2.0
#include "core/control/same_host.hpp"

#include "core/control/control_message.hpp"
#include "core/net/unix_socket.hpp"

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::core::same_host {
namespace {

/// FNV-1a with 64 bits (RFC 9923).
std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
    for (const std::byte each : bytes) hash = (hash ^ std::to_integer<std::uint64_t>(each)) * 0x100'0000'01b3;
    return hash;
}

/// Names the running kernel, the network namespace, in which the names of abstract sockets hold, and the user. A thread
/// may change the latter two at any time, so they are asked for anew. Empty where the OS does not say.
std::string prefix() {
    struct {
        boot_identity kernel = read_boot_identity();
        std::uint64_t device = 0;
        std::uint64_t network = 0;
        std::uint64_t user = ::geteuid();
    } place;
    struct stat found {};
    if (place.kernel == boot_identity{} || ::stat("/proc/self/ns/net", &found) != 0) return {};
    place.device = found.st_dev;
    place.network = found.st_ino;
    return fmt::format("shm:{:016x}:", hash_of(std::as_bytes(std::span{&place, 1})));
}

constexpr std::size_t time_digits = 10;
constexpr std::int64_t time_mask = (std::int64_t{1} << 40U) - 1;

/// In microseconds, modulo 2^40.
std::int64_t time_of(nanoseconds at) noexcept {
    return std::chrono::duration_cast<std::chrono::microseconds>(at).count() & time_mask;
}

/// Takes the time off the front of `text`. True: it lies between `asked` and now, as well as two readings of one clock
/// agree.
bool take_time(std::string_view& text, nanoseconds asked) noexcept {
    constexpr std::int64_t error_us = 10;
    std::int64_t told = 0;
    if (text.size() <= time_digits || text[time_digits] != ':') return false;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + time_digits, told, 16);
    if (failure != std::errc{} || end != text.data() + time_digits || told < 0) return false;
    text.remove_prefix(time_digits + 1);
    const std::int64_t since_asked = (told - time_of(asked) + error_us) & time_mask;
    return since_asked <= ((time_of(now()) - time_of(asked)) & time_mask) + 2 * error_us;
}

}  // namespace

std::string offer(std::string_view name) {
    const std::string own = prefix();
    return own.empty() ? own : fmt::format("{}{:010x}:{}", own, time_of(now()), name);
}

std::string accepted_name(std::string_view offer, nanoseconds asked) {
    const std::string own = prefix();
    if (own.empty() || !offer.starts_with(own)) return {};
    std::string_view name = offer.substr(own.size());
    return !take_time(name, asked) || name.size() > max_socket_name ? std::string{} : std::string{name};
}

bool has_another_clock(std::string_view offer, nanoseconds asked) {
    const std::string own = prefix();
    if (own.empty() || !offer.starts_with(own)) return false;
    offer.remove_prefix(own.size());
    return !take_time(offer, asked);
}

}  // namespace accel::core::same_host
