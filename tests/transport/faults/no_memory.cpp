// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C++ library's operator new, for this program and the libraries that it loads.
#include "faults/no_memory.hpp"

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

namespace accel::faults {
namespace {

constexpr long never = -1;
thread_local long calls_left = never;  ///< allocations before the one that fails
thread_local bool failed = false;
thread_local bool spared = false;  ///< by `elsewhere_left`
std::atomic<long> elsewhere_left{never};
std::atomic<bool> failed_elsewhere{false};
std::atomic<int> counting{0};  ///< threads that look at `elsewhere_left`

bool is_refused_elsewhere() noexcept {
    if (spared || elsewhere_left.load(std::memory_order_relaxed) < 0) return false;
    ++counting;
    const bool refused = elsewhere_left >= 0 && elsewhere_left.fetch_sub(1) == 0;
    if (refused) failed_elsewhere = true;
    --counting;
    return refused;
}

bool is_refused() noexcept {
    if (is_refused_elsewhere()) return true;
    if (calls_left == never || calls_left-- > 0) return false;
    calls_left = never;
    failed = true;
    return true;
}

}  // namespace

void fail_allocation(std::size_t number) noexcept {
    failed = false;
    calls_left = static_cast<long>(number);
}
void fail_allocation_elsewhere(std::size_t number) noexcept {
    failed = failed_elsewhere = false;
    spared = true;
    elsewhere_left = static_cast<long>(number);
}
bool stop_failing() noexcept {
    calls_left = never;
    elsewhere_left = never;
    while (counting != 0) std::this_thread::yield();
    spared = false;
    return failed || failed_elsewhere.exchange(false);
}

}  // namespace accel::faults

// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is the allocator
void* operator new(std::size_t size) {
    void* const made = accel::faults::is_refused() ? nullptr : std::malloc(size);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    const auto wanted = static_cast<std::size_t>(alignment);
    void* const made =
        accel::faults::is_refused() ? nullptr : std::aligned_alloc(wanted, (size + wanted - 1) / wanted * wanted);
    if (made == nullptr) throw std::bad_alloc();
    return made;
}
void operator delete(void* given) noexcept {
    std::free(given);
}
void operator delete(void* given, std::size_t) noexcept {
    std::free(given);
}
void operator delete(void* given, std::align_val_t) noexcept {
    std::free(given);
}
void operator delete(void* given, std::size_t, std::align_val_t) noexcept {
    std::free(given);
}
// NOLINTEND(cppcoreguidelines-no-malloc)
