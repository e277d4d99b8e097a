// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/domain.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace accel::verbs {

/// The domains of all sessions, to be told when a region ends. Thread-safe.
class domain_list {
  public:
    void add(const std::shared_ptr<domain>& made) {
        const std::lock_guard lock(mutex_);
        std::erase_if(domains_, [](const auto& each) { return each.expired(); });
        domains_.push_back(made);
    }
    void forget(std::uint64_t user, std::span<std::byte> range) noexcept {
        const std::lock_guard lock(mutex_);
        for (const auto& each : domains_)
            if (const auto alive = each.lock()) alive->forget(user, range);
    }

  private:
    std::mutex mutex_;
    std::vector<std::weak_ptr<domain>> domains_;
};

}  // namespace accel::verbs
