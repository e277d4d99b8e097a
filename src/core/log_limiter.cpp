// SPDX-License-Identifier: Apache-2.0
#include "core/log_limiter.hpp"

#include <functional>

namespace accel::core {
namespace {

constexpr unsigned count_bits = 8;
constexpr std::uint64_t count_mask = (1U << count_bits) - 1;
constexpr unsigned second_bits = 24;
static_assert(log_limiter::lines_of_reason <= count_mask && log_limiter::lines_of_peer <= count_mask);

std::uint64_t hash_of(const void* reason, std::string_view peer) noexcept {
    constexpr std::uint64_t spread = 0x9e3779b97f4a7c15;
    return (std::hash<std::string_view>{}(peer) ^ reinterpret_cast<std::uintptr_t>(reason)) * spread;
}

}  // namespace

bool log_limiter::take(window& from, std::uint64_t stamp, std::uint32_t most) noexcept {
    std::uint64_t seen = from.load(std::memory_order_relaxed);
    for (;;) {
        const bool same = seen >> count_bits == stamp;
        if (same && (seen & count_mask) >= most) return false;
        const std::uint64_t next = same ? seen + 1 : (stamp << count_bits) + 1;
        if (from.compare_exchange_weak(seen, next, std::memory_order_relaxed)) return true;
    }
}

log_limiter::reason_lines& log_limiter::find(const void* reason) noexcept {
    const std::uint64_t start = hash_of(reason, {}) >> 32U;
    for (std::size_t i = 0; i < reasons_.size(); ++i) {
        reason_lines& each = reasons_[(start + i) % reasons_.size()];
        const void* known = each.reason.load(std::memory_order_relaxed);
        if (known == nullptr && each.reason.compare_exchange_strong(known, reason, std::memory_order_relaxed))
            return each;
        if (known == reason) return each;
    }
    return reasons_.front();
}

bool log_limiter::take_peer(const void* reason, std::string_view peer, std::uint64_t second) noexcept {
    const std::uint64_t hash = hash_of(reason, peer);
    const std::uint64_t tag = hash >> 32U;
    const std::uint64_t stamp = (tag << second_bits) | (second & ((1U << second_bits) - 1));
    return take(peers_[hash % peers_.size()], stamp, lines_of_peer);
}

std::optional<std::uint64_t> log_limiter::allow(const void* reason, std::string_view peer, nanoseconds at) noexcept {
    const auto second = static_cast<std::uint64_t>(at / std::chrono::seconds{1});
    reason_lines& lines = find(reason);
    if (take_peer(reason, peer, second) && take(lines.passed, second, lines_of_reason))
        return lines.kept_back.exchange(0, std::memory_order_relaxed);
    lines.kept_back.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
}

void log_limiter::keep_back(const void* reason, std::uint64_t lines) noexcept {
    find(reason).kept_back.fetch_add(lines, std::memory_order_relaxed);
}

}  // namespace accel::core
