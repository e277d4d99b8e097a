// SPDX-License-Identifier: Apache-2.0
#include "counting_allocator.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/prctl.h>

// glibc's own entry points, below the names that this program replaces.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* data, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* data);
}

namespace {

std::atomic<std::uint64_t> count{0};
std::atomic<std::uint64_t> count_long_aligned{0};
std::atomic<bool> armed{false};

/// One of the control plane's two. A later call sees a name that the thread has got meanwhile.
bool in_control_plane() noexcept {
    char name[16] = {};
    ::prctl(PR_GET_NAME, name);
    return std::strcmp(name, "accel-sessions") == 0 || std::strcmp(name, "accel-control") == 0;
}

void note() noexcept {
    if (in_control_plane()) return;
    count.fetch_add(1, std::memory_order_relaxed);
    if (armed.load(std::memory_order_relaxed)) std::abort();
}

void note_aligned(std::size_t size) noexcept {
    note();
    if (size >= std::size_t{64} << 10) count_long_aligned.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// operator new of the standard library calls one of these, which one differs between its builds. Each has to be visible
// to it, though this project hides its symbols.
#pragma GCC visibility push(default)
extern "C" {
void* malloc(std::size_t size) {
    note();
    return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
    note();
    return __libc_calloc(number, size);
}
void* realloc(void* data, std::size_t size) {
    note();
    return __libc_realloc(data, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
    note_aligned(size);
    return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
    note_aligned(size);
    return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
    note_aligned(size);
    *out = __libc_memalign(alignment, size);
    return *out == nullptr ? ENOMEM : 0;
}
void free(void* data) {
    __libc_free(data);
}
}
#pragma GCC visibility pop

namespace accel::tests {

std::uint64_t heap_allocations() noexcept {
    return count.load(std::memory_order_relaxed);
}

std::uint64_t long_aligned_allocations() noexcept {
    return count_long_aligned.load(std::memory_order_relaxed);
}

allocation_trap::allocation_trap() noexcept {
    armed = std::getenv("ACCEL_ALLOC_TRAP") != nullptr;
}
allocation_trap::~allocation_trap() {
    armed = false;
}

}  // namespace accel::tests
