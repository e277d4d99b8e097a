// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <unordered_map>

namespace accel::core {

/// A token bucket: a burst at once, then a rate per second.
class token_bucket {
  public:
    token_bucket(std::uint32_t burst, std::uint32_t per_second) noexcept
        : burst_(burst), per_second_(per_second), tokens_(burst) {}

    [[nodiscard]] bool take(nanoseconds at) noexcept {
        refill(at);
        if (tokens_ < 1) return false;
        tokens_ -= 1;
        return true;
    }
    void refill(nanoseconds at) noexcept {
        const std::chrono::duration<double> passed = at - refilled_;
        tokens_ = std::min<double>(burst_, tokens_ + std::max(0.0, passed.count()) * per_second_);
        refilled_ = at;
    }
    [[nodiscard]] bool full() const noexcept { return tokens_ >= burst_; }
    /// Time until `count` tokens are there.
    [[nodiscard]] nanoseconds time_until(std::uint32_t count) const noexcept {
        const double missing = std::max(0.0, std::min<double>(count, burst_) - tokens_);
        return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(missing / per_second_));
    }

  private:
    double burst_;
    double per_second_;
    double tokens_;
    nanoseconds refilled_ = now();
};

/// How often each address may begin a handshake. The table is bounded: when it is full of busy addresses, the
/// others share one bucket.
class handshake_limits {
  public:
    handshake_limits(std::uint32_t burst, std::uint32_t per_second)
        : burst_(burst), per_second_(per_second), others_(burst, per_second) {}

    [[nodiscard]] bool take(const std::string& address, nanoseconds at) { return bucket_of(address, at).take(at); }

  private:
    static constexpr std::size_t max_addresses = 4096;

    token_bucket& bucket_of(const std::string& address, nanoseconds at) {
        const auto found = buckets_.find(address);
        if (found != buckets_.end()) return found->second;
        if (buckets_.size() >= max_addresses) forget_idle(at);
        if (buckets_.size() >= max_addresses) return others_;
        return buckets_.emplace(address, token_bucket(burst_, per_second_)).first->second;
    }

    void forget_idle(nanoseconds at) {
        for (auto each = buckets_.begin(); each != buckets_.end();) {
            each->second.refill(at);
            each = each->second.full() ? buckets_.erase(each) : std::next(each);
        }
    }

    std::uint32_t burst_;
    std::uint32_t per_second_;
    token_bucket others_;
    std::unordered_map<std::string, token_bucket> buckets_;
};

}  // namespace accel::core
