// SPDX-License-Identifier: Apache-2.0
// refused: nodiscard|unused-result
#include <accel_transport/channel.hpp>

accel::status send(accel::channel& channel, accel::call_id id) {
#ifdef MISUSE
    channel.submit(id, 0);
    return accel::status::ok;
#else
    return channel.submit(id, 0);
#endif
}
