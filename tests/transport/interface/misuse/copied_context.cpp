// SPDX-License-Identifier: Apache-2.0
// refused: deleted|use of deleted|implicitly-deleted
#include <accel_transport/context.hpp>

#include <utility>

accel::context second_owner(accel::context& first) {
#ifdef MISUSE
    return first;
#else
    return std::move(first);
#endif
}
