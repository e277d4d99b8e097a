// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace accel::core {

/// Makes a descriptor readable from a driver's thread, which may outlive the sleeper.
class stream_waker {
  public:
    explicit stream_waker(int wake_fd) noexcept;
    ~stream_waker();
    stream_waker(const stream_waker&) = delete;
    stream_waker& operator=(const stream_waker&) = delete;
    /// The callback for `device_stream::finish`; its argument is the waker.
    static void wake(void* self) noexcept;

  private:
    int fd_;
};

}  // namespace accel::core
