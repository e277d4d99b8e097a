// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace accel::faults {

/// The calling thread's n-th `operator new` from now on throws std::bad_alloc, once; 0: the next one.
void fail_allocation(std::size_t number) noexcept;
/// The n-th of all other threads.
void fail_allocation_elsewhere(std::size_t number) noexcept;
/// No allocation fails any more. True: one has.
bool stop_failing() noexcept;

}  // namespace accel::faults
