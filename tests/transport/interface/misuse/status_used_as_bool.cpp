// SPDX-License-Identifier: Apache-2.0
// refused: cannot (convert|initialize)
#include <accel_transport/channel.hpp>

bool released(accel::channel& channel, accel::call_id call) {
#ifdef MISUSE
    return channel.release(call);
#else
    return channel.release(call) == accel::status::ok;
#endif
}
