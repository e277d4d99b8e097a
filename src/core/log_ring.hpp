// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/log.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace accel::core {

/// A line on its way to the log's thread.
struct log_line {
    static constexpr std::size_t max_bytes = 992;

    std::chrono::system_clock::time_point at;
    std::uint64_t dropped;  ///< lines that had found no room when this one was logged, since the ring was made
    log_level level;
    std::uint16_t length;
    std::array<char, max_bytes> bytes;

    [[nodiscard]] std::string_view text() const noexcept { return {bytes.data(), length}; }
};

/// Lines from any number of threads to one, in a fixed size of memory (1 MiB, touched as it is used). Lock-free: a line
/// is lost only if there is no room, and a preempted thread delays no other that logs. It is D. Vyukov's bounded queue.
class log_ring {
  public:
    static constexpr std::uint64_t capacity = 1024;

    log_ring() noexcept {
        for (std::uint64_t i = 0; i < capacity; ++i) positions_[i].store(i, std::memory_order_relaxed);
    }

    /// Any thread: a line to fill and to publish, soon. Null if there is no room, which is counted.
    [[nodiscard]] log_line* claim() noexcept {
        std::uint64_t at = claimed_.load(std::memory_order_relaxed);
        for (;;) {
            const auto position = positions_[at % capacity].load(std::memory_order_acquire);
            if (position == at) {
                if (claimed_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) break;
            } else if (position < at) {
                dropped_.fetch_add(1, std::memory_order_relaxed);
                return nullptr;
            } else {
                at = claimed_.load(std::memory_order_relaxed);
            }
        }
        log_line& mine = lines_[at % capacity];
        mine.dropped = dropped_.load(std::memory_order_relaxed);
        return &mine;
    }
    void publish(const log_line& filled) noexcept {
        auto& position = positions_[static_cast<std::size_t>(&filled - lines_.data())];
        position.store(position.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

    /// The reader: the oldest line, or null. It stays until `pop`.
    [[nodiscard]] const log_line* front() const noexcept {
        const std::uint64_t at = taken_.load(std::memory_order_relaxed);
        const bool published = positions_[at % capacity].load(std::memory_order_acquire) == at + 1;
        return published ? &lines_[at % capacity] : nullptr;
    }
    void pop() noexcept {
        const std::uint64_t at = taken_.load(std::memory_order_relaxed);
        positions_[at % capacity].store(at + capacity, std::memory_order_release);
        taken_.store(at + 1, std::memory_order_release);
    }

    // Since the ring was made; any thread:
    [[nodiscard]] std::uint64_t claimed() const noexcept { return claimed_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t taken() const noexcept { return taken_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  private:
    alignas(64) std::atomic<std::uint64_t> claimed_{0};
    std::atomic<std::uint64_t> dropped_{0};
    alignas(64) std::atomic<std::uint64_t> taken_{0};
    /// For each line: its position if it is free, one more once it is published.
    std::array<std::atomic<std::uint64_t>, capacity> positions_;
    std::array<log_line, capacity> lines_;
};

}  // namespace accel::core
