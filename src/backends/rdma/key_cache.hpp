// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/domain.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::rdma {

/// Keys of the regions a link has lent lately, for its own thread. Ids of regions are never used again, so
/// an entry of a region that is gone is never found.
class key_cache {
  public:
    struct entry {
        std::uint64_t region = 0;  ///< 0: none
        verbs::access use = verbs::access::send;
        verbs::memory_keys keys;
    };
    [[nodiscard]] const verbs::memory_keys* find(std::uint64_t region, verbs::access use) const noexcept {
        for (const entry& each : entries_)
            if (each.region == region && each.use == use) return &each.keys;
        return nullptr;
    }
    void put(const entry& made) noexcept { entries_[next_++ % entries_.size()] = made; }

  private:
    std::array<entry, 8> entries_{};
    std::size_t next_ = 0;
};

}  // namespace accel::rdma
