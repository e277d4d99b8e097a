// SPDX-License-Identifier: Apache-2.0
// refused: private
#include <accel_transport/memory.hpp>

accel::slice lend(std::byte* data, std::size_t size, const accel::region& region) {
#ifdef MISUSE
    return accel::slice{data, size, nullptr};
#else
    static_cast<void>(data);
    static_cast<void>(size);
    return region.whole();
#endif
}
