// SPDX-License-Identifier: Apache-2.0
// refused: deleted|use of deleted|implicitly-deleted
#include <accel_transport/server.hpp>

#include <utility>

accel::exchange second_owner(accel::exchange& first) {
#ifdef MISUSE
    return first;
#else
    return std::move(first);
#endif
}
