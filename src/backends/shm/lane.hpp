// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace accel::shm {

/// An entry of a lane: the number of slots announced so far, with this one, in the upper half, and the slot below.
using lane_entry = std::atomic<std::uint64_t>;
static_assert(sizeof(lane_entry) == 8 && lane_entry::is_always_lock_free);

/// Announces slots to the other process, in memory that the reader cannot write. A slot has at most one message on the
/// way, so that as many entries as slots suffice.
class lane_writer {
  public:
    lane_writer() noexcept = default;
    /// `count`: of entries, a power of two.
    lane_writer(std::byte* entries, std::uint32_t count) noexcept
        : entries_(reinterpret_cast<lane_entry*>(entries)), mask_(count - 1) {}

    /// A reader that sees the entry sees everything written before it.
    void push(std::uint32_t slot) noexcept {
        lane_entry& entry = entries_[pushed_ & mask_];
        ++pushed_;
        // Before a look at whether the reader sleeps. A store of its own, with the fence behind it, leaves as soon as
        // what was written before; an exchange would first wait until that has left.
        const std::uint64_t written = std::uint64_t{pushed_} << 32 | slot;
#ifdef __SANITIZE_THREAD__  // gcc's does not know fences
        entry.store(written, std::memory_order_seq_cst);
#else
        entry.store(written, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    }

  private:
    lane_entry* entries_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint32_t pushed_ = 0;
};

/// The other end. What the peer writes there is no more than a slot's number, which the caller checks.
class lane_reader {
  public:
    lane_reader() noexcept = default;
    lane_reader(const std::byte* entries, std::uint32_t count) noexcept
        : entries_(reinterpret_cast<const lane_entry*>(entries)), mask_(count - 1) {}

    /// Takes the next slot; false: there is none.
    [[nodiscard]] bool take(std::uint32_t& slot) noexcept {
        const std::uint64_t seen = entries_[taken_ & mask_].load(std::memory_order_acquire);
        if (!is_next(seen)) return false;
        ++taken_;
        slot = static_cast<std::uint32_t>(seen);
        return true;
    }
    /// After the peer was told that this end sleeps.
    [[nodiscard]] bool empty() const noexcept {
        return !is_next(entries_[taken_ & mask_].load(std::memory_order_seq_cst));
    }

  private:
    [[nodiscard]] bool is_next(std::uint64_t entry) const noexcept {
        return static_cast<std::uint32_t>(entry >> 32) == taken_ + 1;
    }

    const lane_entry* entries_ = nullptr;
    std::uint32_t mask_ = 0;
    std::uint32_t taken_ = 0;
};

}  // namespace accel::shm
