// SPDX-License-Identifier: Apache-2.0
// refused: nodiscard|unused-result
#include <accel_transport/status.hpp>

accel::result<void> act();

bool acted() {
#ifdef MISUSE
    act();
    return true;
#else
    return act().ok();
#endif
}
