// SPDX-License-Identifier: Apache-2.0
// refused: cannot (convert|initialize)
#include <accel_transport/channel.hpp>

bool begun(accel::channel& channel, accel::call_view& call) {
#ifdef MISUSE
    return channel.begin(call);
#else
    return channel.begin(call) == accel::status::ok;
#endif
}
