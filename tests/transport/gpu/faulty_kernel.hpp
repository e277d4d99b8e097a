// SPDX-License-Identifier: Apache-2.0
#pragma once

struct CUstream_st;

namespace accel::tests {

/// Gives the stream a kernel that writes where there is no memory: the device is lost to this process.
void launch_faulty_kernel(CUstream_st* stream);
/// … one that works for `milliseconds`.
void launch_slow_kernel(CUstream_st* stream, unsigned milliseconds);

}  // namespace accel::tests
