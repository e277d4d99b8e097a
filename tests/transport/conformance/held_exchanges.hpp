// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "patience.hpp"

#include <accel_transport/server.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace accel::tests {

/// Where a handler puts exchanges that the test answers later. Thread-safe; must outlive the server, or be
/// emptied after it.
class held_exchanges {
  public:
    void keep(exchange one) {
        const std::lock_guard lock(mutex_);
        held_.push_back(std::move(one));
        arrived_.notify_all();
    }
    [[nodiscard]] handler keeper() {
        return [this](exchange one) { keep(std::move(one)); };
    }
    /// The oldest; throws if none arrives within `bound`.
    [[nodiscard]] exchange take(nanoseconds bound = until_hung()) {
        std::unique_lock lock(mutex_);
        if (!arrived_.wait_for(lock, bound, [this] { return !held_.empty(); }))
            throw std::runtime_error("no request arrived within the bound");
        exchange one = std::move(held_.front());
        held_.pop_front();
        return one;
    }
    [[nodiscard]] exchange take_last(nanoseconds bound = until_hung()) {
        std::unique_lock lock(mutex_);
        if (!arrived_.wait_for(lock, bound, [this] { return !held_.empty(); }))
            throw std::runtime_error("no request arrived within the bound");
        exchange one = std::move(held_.back());
        held_.pop_back();
        return one;
    }
    [[nodiscard]] bool wait_for(std::size_t count, nanoseconds bound = until_hung()) {
        std::unique_lock lock(mutex_);
        return arrived_.wait_for(lock, bound, [&] { return held_.size() >= count; });
    }
    [[nodiscard]] std::size_t size() const {
        const std::lock_guard lock(mutex_);
        return held_.size();
    }
    /// Drops what is held, which answers `abandoned`.
    void clear() {
        std::deque<exchange> dropped;
        const std::lock_guard lock(mutex_);
        dropped.swap(held_);
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<exchange> held_;
};

}  // namespace accel::tests
