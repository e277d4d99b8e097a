// SPDX-License-Identifier: Apache-2.0
// refused: read-only|const
#include <accel_transport/channel.hpp>

void change(accel::response& response, accel::call_view& call) {
#ifdef MISUSE
    response.bytes()[0] = std::byte{1};
#else
    call.request[0] = response.bytes()[0];
#endif
}
