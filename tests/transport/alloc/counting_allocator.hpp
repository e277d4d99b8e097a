// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace accel::tests {

/// Heap allocations of this process so far: malloc, calloc, realloc, the aligned ones and operator new. On every thread
/// but the control plane's, which encode heartbeats and cancellations on the heap, a bounded number a second.
[[nodiscard]] std::uint64_t heap_allocations() noexcept;

/// Of those, aligned ones of 64 KiB and more. glibc's heap (2.36) does not find the hole that such a block leaves for
/// the next one of its size, so a process that makes them again and again grows.
[[nodiscard]] std::uint64_t long_aligned_allocations() noexcept;

/// While one lives, the next allocation on any thread ends the process, so that a debugger shows where it
/// came from. Only with ACCEL_ALLOC_TRAP set in the environment; else it does nothing.
class allocation_trap {
  public:
    allocation_trap() noexcept;
    ~allocation_trap();
    allocation_trap(const allocation_trap&) = delete;
    allocation_trap& operator=(const allocation_trap&) = delete;
};

}  // namespace accel::tests
