// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace accel::examples::serving::doors {

/// Gives the system back what the heap holds and nobody uses, as long as it lives: many small blocks of a burst leave
/// pages between others, which glibc keeps for ever. A thread of its own, because that takes a while; where
/// the system has none for it, nothing is given back.
class heap_trimmer {
  public:
    explicit heap_trimmer(std::chrono::milliseconds between = std::chrono::seconds{5});
    heap_trimmer(const heap_trimmer&) = delete;
    heap_trimmer& operator=(const heap_trimmer&) = delete;
    ~heap_trimmer();

  private:
    void run();
    [[nodiscard]] bool ends_within(std::chrono::milliseconds time);

    const std::chrono::milliseconds between_;
    std::mutex lock_;
    std::condition_variable ended_;
    bool ends_ = false;
    std::thread thread_;
};

}  // namespace accel::examples::serving::doors
