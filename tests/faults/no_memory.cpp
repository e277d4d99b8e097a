// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C++ library's operator new, for this program and the libraries that it loads.
#include "faults/no_memory.hpp"

#include <cstdlib>
#include <new>

namespace accel::faults {
namespace {

constexpr long never = -1;
thread_local long calls_left = never;  ///< allocations before the one that fails
thread_local bool failed = false;

bool is_refused() noexcept {
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
bool stop_failing() noexcept {
    calls_left = never;
    return failed;
}

}  // namespace accel::faults

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
