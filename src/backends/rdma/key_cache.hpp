// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/domain.hpp"

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace accel::rdma {

/// Keys of the regions a link has lent lately, for its own thread. Ids of regions are never used again, so
/// an entry of a region that is gone is never found. It grows with the regions in use: a gateway lends those of all
/// its clients' sessions.
class key_cache {
  public:
    struct entry {
        std::uint64_t region = 0;  ///< 0: none
        verbs::access use = verbs::access::send;
        verbs::memory_keys keys;
    };
    static constexpr std::size_t fewest = 8;
    static constexpr std::size_t most = 1024;  ///< entries, of 32 bytes or less

    [[nodiscard]] const verbs::memory_keys* find(std::uint64_t region, verbs::access use) const noexcept {
        const entry& at = entries_[place_of(region, use)];
        return at.region == region && at.use == use ? &at.keys : nullptr;
    }
    /// Allocates while it grows; where there is no memory for that, it takes the place of another's keys.
    void put(const entry& made) noexcept {
        while (taken_by_other(made) && entries_.size() < most && grow()) {
        }
        entries_[place_of(made.region, made.use)] = made;
    }
    [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

  private:
    /// Neighbours in time, which have ids one behind the other, never share a place; nor do the uses of one region.
    [[nodiscard]] std::size_t place_of(std::uint64_t region, verbs::access use) const noexcept {
        const std::uint64_t mixed = 2 * region + (use == verbs::access::send ? 0 : 1);
        return static_cast<std::size_t>(mixed) & (entries_.size() - 1);
    }
    [[nodiscard]] bool taken_by_other(const entry& made) const noexcept {
        const entry& at = entries_[place_of(made.region, made.use)];
        return at.region != 0 && (at.region != made.region || at.use != made.use);
    }
    [[nodiscard]] bool grow() noexcept {
        try {
            std::vector<entry> old(2 * entries_.size());
            old.swap(entries_);
            for (const entry& each : old)
                if (each.region != 0) entries_[place_of(each.region, each.use)] = each;
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    std::vector<entry> entries_ = std::vector<entry>(fewest);  ///< a power of two
};

}  // namespace accel::rdma
