// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// Access to memory that the program owns and may unmap at any time. Every function returns false, and has no
/// further effect, when an address faults. They are written in assembly inside one address range, so that the
/// fault handler can recognise them, and so that sanitizers see the device as what it is: not part of the
/// program.
namespace accel::softnic::guarded {

/// Where an address that a work request names lies in this process.
inline void* pointer(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}

/// Makes the functions below safe. Idempotent; until it has run, a fault is an ordinary crash.
void install_fault_handler();

/// Copies in ascending order below 256 bytes. A copy of 1, 2, 4 or 8 bytes, and each aligned 8 bytes of a
/// longer one, lands whole, so that a polled flag never tears.
[[nodiscard]] bool copy(void* to, const void* from, std::size_t size_bytes);

[[nodiscard]] bool load32(const void* from, std::uint32_t& value);
[[nodiscard]] bool exchange64(void* at, std::uint64_t desired, std::uint64_t& previous);
[[nodiscard]] bool fetch_add64(void* at, std::uint64_t add, std::uint64_t& previous);
[[nodiscard]] bool compare_swap64(void* at, std::uint64_t expected, std::uint64_t desired, std::uint64_t& previous);

}  // namespace accel::softnic::guarded
