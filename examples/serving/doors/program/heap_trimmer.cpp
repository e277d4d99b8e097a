// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/program/heap_trimmer.hpp"

#include "report/cpu_time.hpp"

#include <algorithm>
#include <cstdint>
#include <system_error>

#include <malloc.h>

namespace accel::examples::serving::doors {
namespace {

/// Less is kept for the next burst.
constexpr std::int64_t worth_trimming = std::int64_t{64} << 20;

/// Bytes of this process in memory that no block of the heap's is in.
std::int64_t unused_bytes() {
    const auto heap = mallinfo2();
    return static_cast<std::int64_t>(report::resident_bytes()) - static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
}

/// `settled`: what is not the heap's, and stays.
void trim_heap(std::int64_t& settled) {
    const std::int64_t now = unused_bytes();
    settled = std::min(settled, now);
    if (now < settled + worth_trimming) return;
    malloc_trim(0);
    settled = unused_bytes();
}

}  // namespace

heap_trimmer::heap_trimmer(std::chrono::milliseconds between) : between_(between) {
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // then the heap keeps what it has
    }
}

heap_trimmer::~heap_trimmer() {
    {
        const std::lock_guard lock{lock_};
        ends_ = true;
    }
    ended_.notify_one();
    if (thread_.joinable()) thread_.join();
}

bool heap_trimmer::ends_within(std::chrono::milliseconds time) {
    std::unique_lock lock{lock_};
    return ended_.wait_for(lock, time, [this] { return ends_; });
}

void heap_trimmer::run() {
    std::int64_t settled = unused_bytes();
    while (!ends_within(between_)) trim_heap(settled);
}

}  // namespace accel::examples::serving::doors
