// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace accel::examples::serving::doors {

/// What texts and inflated messages of all requests of a door may take together. Any thread takes and gives.
class memory_budget {
  public:
    explicit memory_budget(std::size_t most) noexcept : most_(most) {}

    /// False: there is not so much now.
    [[nodiscard]] bool take(std::size_t bytes) noexcept {
        std::size_t taken = taken_.load(std::memory_order_relaxed);
        do {
            if (bytes > most_ - taken) return false;
        } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
        return true;
    }
    void give(std::size_t bytes) noexcept { taken_.fetch_sub(bytes, std::memory_order_relaxed); }
    [[nodiscard]] std::size_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

  private:
    const std::size_t most_;
    std::atomic<std::size_t> taken_{0};
};

/// What one message has of a budget, until its end.
class memory_share {
  public:
    memory_share() = default;
    explicit memory_share(std::shared_ptr<memory_budget> of) noexcept : of_(std::move(of)) {}
    memory_share(memory_share&& from) noexcept
        : of_(std::move(from.of_)), bytes_(std::exchange(from.bytes_, std::size_t{0})) {}
    memory_share& operator=(memory_share&& from) noexcept {
        std::swap(of_, from.of_);
        std::swap(bytes_, from.bytes_);
        return *this;
    }
    ~memory_share() { shrink(bytes_); }

    /// False: there is not so much now, or it is no share of anything.
    [[nodiscard]] bool grow(std::size_t by) noexcept {
        if (of_ == nullptr || !of_->take(by)) return false;
        bytes_ += by;
        return true;
    }
    void shrink(std::size_t by) noexcept {
        if (by > 0) of_->give(by);
        bytes_ -= by;
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  private:
    std::shared_ptr<memory_budget> of_;
    std::size_t bytes_ = 0;
};

}  // namespace accel::examples::serving::doors
