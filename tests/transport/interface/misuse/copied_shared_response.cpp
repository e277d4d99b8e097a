// SPDX-License-Identifier: Apache-2.0
// refused: deleted|use of deleted|implicitly-deleted
#include <accel_transport/shared_channel.hpp>

#include <utility>

accel::shared_response second_owner(accel::shared_response& first) {
#ifdef MISUSE
    return first;
#else
    return std::move(first);
#endif
}
