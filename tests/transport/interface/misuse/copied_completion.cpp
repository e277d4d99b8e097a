// SPDX-License-Identifier: Apache-2.0
// refused: deleted|use of deleted|implicitly-deleted
#include <accel_transport/channel.hpp>

#include <utility>

accel::completion second_owner(accel::completion& first) {
#ifdef MISUSE
    return first;
#else
    return std::move(first);
#endif
}
