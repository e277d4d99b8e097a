// SPDX-License-Identifier: Apache-2.0
// refused: convert|conversion
#include <accel_transport/memory.hpp>

accel::slice first_half(const accel::slice& whole) {
    accel::result<accel::slice> half = whole.part(0, whole.size() / 2);
#ifdef MISUSE
    return half;
#else
    return half.ok() ? half.value() : accel::slice{};
#endif
}
