// SPDX-License-Identifier: Apache-2.0
// refused: nodiscard|unused-result
#include <accel_transport/context.hpp>

bool open() {
#ifdef MISUSE
    accel::context::open();
    return true;
#else
    return accel::context::open().ok();
#endif
}
