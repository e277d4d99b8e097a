// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/host_device.hpp>

#include <cstdint>

/// Atomic steps between threads of one processor: of the host, or of one GPU. What is exchanged with an
/// adapter or the other processor goes by `fences.hpp`.
namespace accel::device::detail {

/// Acquire: this thread then sees what the storing thread wrote before.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t load_acquire(const std::uint32_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    std::uint32_t value = 0;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(where) : "memory");
    return value;
#else
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
#endif
}
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t load_relaxed(const std::uint32_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    return *const_cast<const volatile std::uint32_t*>(where);
#else
    return __atomic_load_n(where, __ATOMIC_RELAXED);
#endif
}
ACCEL_HOST_DEVICE inline void store_relaxed(std::uint32_t* where, std::uint32_t value) noexcept {
#if defined(__CUDA_ARCH__)
    *const_cast<volatile std::uint32_t*>(where) = value;
#else
    __atomic_store_n(where, value, __ATOMIC_RELAXED);
#endif
}
ACCEL_HOST_DEVICE inline void store_release(std::uint32_t* where, std::uint32_t value) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(where), "r"(value) : "memory");
#else
    __atomic_store_n(where, value, __ATOMIC_RELEASE);
#endif
}

/// A load of what stands before a flag that has been read: a GPU needs no other.
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint32_t load_fenced(const std::uint32_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    return load_relaxed(where);
#else
    return load_acquire(where);
#endif
}
/// A store that a fence orders, one that stands before it or is still to come: a GPU needs no other.
ACCEL_HOST_DEVICE inline void store_fenced(std::uint32_t* where, std::uint32_t value) noexcept {
#if defined(__CUDA_ARCH__)
    store_relaxed(where, value);
#else
    store_release(where, value);
#endif
}

/// Returns the value before. Acquire and release: this thread sees what those wrote that added before it, and those
/// that add later see what this thread wrote.
ACCEL_HOST_DEVICE inline std::uint32_t fetch_add(std::uint32_t* where, std::uint32_t addend) noexcept {
#if defined(__CUDA_ARCH__)
    std::uint32_t before = 0;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(where), "r"(addend) : "memory");
    return before;
#else
    return __atomic_fetch_add(where, addend, __ATOMIC_ACQ_REL);
#endif
}

ACCEL_HOST_DEVICE inline std::uint64_t fetch_add(std::uint64_t* where, std::uint64_t addend) noexcept {
#if defined(__CUDA_ARCH__)
    std::uint64_t before = 0;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(where), "l"(addend) : "memory");
    return before;
#else
    return __atomic_fetch_add(where, addend, __ATOMIC_ACQ_REL);
#endif
}

/// Takes one away. What this thread has written is seen by whoever finds the word so, by an acquiring load.
ACCEL_HOST_DEVICE inline void count_down(std::uint32_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" : : "l"(where), "r"(0xffff'ffffU) : "memory");
#else
    __atomic_fetch_sub(where, 1U, __ATOMIC_RELEASE);
#endif
}

/// Adds one to a counter, which orders nothing; what was there before.
ACCEL_HOST_DEVICE inline std::uint32_t count_up(std::uint32_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    return atomicAdd(where, 1U);
#else
    return __atomic_fetch_add(where, 1U, __ATOMIC_RELAXED);
#endif
}
ACCEL_HOST_DEVICE inline std::uint64_t count_up(std::uint64_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    return atomicAdd(reinterpret_cast<unsigned long long*>(where), 1ULL);
#else
    return __atomic_fetch_add(where, 1U, __ATOMIC_RELAXED);
#endif
}
[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint64_t load_relaxed(const std::uint64_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    return *const_cast<const volatile std::uint64_t*>(where);
#else
    return __atomic_load_n(where, __ATOMIC_RELAXED);
#endif
}

/// False: the word is not `expected`, which becomes what it is. True: what the thread that stored it had
/// written before is seen.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool compare_exchange(std::uint32_t* where, std::uint32_t& expected,
                                                             std::uint32_t desired) noexcept {
#if defined(__CUDA_ARCH__)
    const std::uint32_t wanted = expected;
    asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(expected)
                 : "l"(where), "r"(wanted), "r"(desired)
                 : "memory");
    return expected == wanted;
#else
    return __atomic_compare_exchange_n(where, &expected, desired, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
#endif
}
[[nodiscard]] ACCEL_HOST_DEVICE inline bool compare_exchange(std::uint64_t* where, std::uint64_t& expected,
                                                             std::uint64_t desired) noexcept {
#if defined(__CUDA_ARCH__)
    const std::uint64_t wanted = expected;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(expected)
                 : "l"(where), "l"(wanted), "l"(desired)
                 : "memory");
    return expected == wanted;
#else
    return __atomic_compare_exchange_n(where, &expected, desired, false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
#endif
}

[[nodiscard]] ACCEL_HOST_DEVICE inline std::uint64_t load_acquire(const std::uint64_t* where) noexcept {
#if defined(__CUDA_ARCH__)
    std::uint64_t value = 0;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(where) : "memory");
    return value;
#else
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
#endif
}

/// As `compare_exchange`, and what this thread has written is seen by whoever acquires `desired`, or what
/// others make of it by a step like this.
[[nodiscard]] ACCEL_HOST_DEVICE inline bool hand_over(std::uint64_t* where, std::uint64_t& expected,
                                                      std::uint64_t desired) noexcept {
#if defined(__CUDA_ARCH__)
    const std::uint64_t wanted = expected;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(expected)
                 : "l"(where), "l"(wanted), "l"(desired)
                 : "memory");
    return expected == wanted;
#else
    return __atomic_compare_exchange_n(where, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#endif
}

}  // namespace accel::device::detail
