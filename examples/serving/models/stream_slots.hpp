// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

struct CUstream_st;

namespace accel::examples::serving {

/// Numbers of streams, for memory that each of them has to itself. Any threads at once; no lock.
class stream_slots {
  public:
    explicit stream_slots(std::size_t count) : count_(count), owners_(new std::atomic<const void*>[count]()) {}
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// The number that belongs to a stream from its first call on. Empty: there are more streams than slots.
    [[nodiscard]] std::optional<std::size_t> of(const CUstream_st* stream) noexcept {
        for (std::size_t i = 0; i < count_; ++i) {
            const void* seen = owners_[i].load(std::memory_order_relaxed);
            if (seen == nullptr && owners_[i].compare_exchange_strong(seen, stream, std::memory_order_relaxed))
                return i;
            if (seen == stream) return i;
        }
        return std::nullopt;
    }

  private:
    std::size_t count_;
    std::unique_ptr<std::atomic<const void*>[]> owners_;
};

}  // namespace accel::examples::serving
