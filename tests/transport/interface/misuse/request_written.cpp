// SPDX-License-Identifier: Apache-2.0
// refused: read-only|const
#include <accel_transport/server.hpp>

void answer(accel::exchange& exchange) {
#ifdef MISUSE
    exchange.request()[0] = std::byte{1};
#else
    exchange.response()[0] = exchange.request()[0];
#endif
}
