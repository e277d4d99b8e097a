// SPDX-License-Identifier: Apache-2.0
// refused: deleted|use of deleted|implicitly-deleted
#include <accel_transport/memory.hpp>

#include <utility>

accel::region second_owner(accel::region& first) {
#ifdef MISUSE
    return first;
#else
    return std::move(first);
#endif
}
