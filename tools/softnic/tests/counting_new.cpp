// SPDX-License-Identifier: Apache-2.0
// In a file of its own: a compiler that sees these inlined takes malloc and delete for a mismatch.
#include "counting_new.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t count = 0;

}  // namespace

std::uint64_t accel::softnic::testing::allocations() {
    return count;
}

void* operator new(std::size_t size) {
    ++count;
    if (void* got = std::malloc(size)) return got;
    throw std::bad_alloc();
}

void operator delete(void* at) noexcept {
    std::free(at);
}

void operator delete(void* at, std::size_t) noexcept {
    std::free(at);
}
