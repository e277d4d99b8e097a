// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.hpp"
#include "core/net/unique_fd.hpp"
#include "staging/accelerator.hpp"

#include <cstddef>

struct CUstream_st;

/// Threads of the host that wait for a GPU.
namespace accel::core {

/// Makes a descriptor readable from a driver's thread, which may outlive the sleeper.
class stream_waker {
  public:
    explicit stream_waker(int wake_fd) noexcept;
    /// The callback for `device_stream::finish`; its argument is the waker.
    static void wake(void* self) noexcept;

  private:
    unique_fd fd_;
};

/// Sleeps until everything that was given to the application's `stream` has ended; `timed_out` at `deadline`;
/// `device_lost`: the GPU has failed.
[[nodiscard]] status wait_for_end(accelerator_device& gpu, CUstream_st* stream, nanoseconds deadline);

/// Copies between device and host memory, and sleeps until that is done. `timed_out` at `deadline`; `device_lost` if
/// the device has failed. Works while persistent kernels run.
[[nodiscard]] result<void> copy_and_wait(accelerator_device& gpu, std::byte* to, const std::byte* from,
                                         std::size_t bytes, nanoseconds deadline);

}  // namespace accel::core
