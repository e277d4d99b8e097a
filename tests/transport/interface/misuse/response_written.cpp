// SPDX-License-Identifier: Apache-2.0
// refused: read-only|const
#include <accel_transport/channel.hpp>

void change(accel::completion& done, accel::call_view& call) {
#ifdef MISUSE
    done.response[0] = std::byte{1};
#else
    call.request[0] = done.response[0];
#endif
}
