// SPDX-License-Identifier: Apache-2.0
// refused: a scope is thread_scope, or in a CUDA kernel
#include <accel_transport/device/service.hpp>

accel::status take(const accel::device::service_ref& service, accel::device::exchange_ref& out) {
#ifdef MISUSE
    return accel::device::take<accel::device::warp_scope>(service, out);
#else
    return accel::device::take<accel::device::thread_scope>(service, out);
#endif
}
