// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define ACCEL_COUNTS_IN_ONE_INSTRUCTION
#endif

namespace accel::core {

/// A number that one thread raises and any thread reads.
class counter {
  public:
    /// The owning thread only.
    void add(std::uint64_t amount = 1) noexcept {
#ifdef ACCEL_COUNTS_IN_ONE_INSTRUCTION
        // A relaxed load and a relaxed store: gcc makes three instructions of them, and one will do.
        asm("addq %1, %0" : "+m"(value_) : "er"(amount) : "cc");  // NOLINT(hicpp-no-assembler)
#else
        __atomic_store_n(&value_, __atomic_load_n(&value_, __ATOMIC_RELAXED) + amount, __ATOMIC_RELAXED);
#endif
    }
    [[nodiscard]] std::uint64_t read() const noexcept {
        return __atomic_load_n(&value_, __ATOMIC_RELAXED);
    }

  private:
    std::uint64_t value_ = 0;
};

/// The number of the highest bit that is 1. `value` is not 0.
[[nodiscard]] inline std::size_t highest_bit(std::uint64_t value) noexcept {
#ifdef ACCEL_COUNTS_IN_ONE_INSTRUCTION
    // gcc extends the result of its builtin, which is wide enough.
    std::size_t found;
    asm("bsrq %1, %0" : "=r"(found) : "rm"(value) : "cc");  // NOLINT(hicpp-no-assembler)
    return found;
#else
    return 63U - static_cast<unsigned>(__builtin_clzll(value));
#endif
}

}  // namespace accel::core
