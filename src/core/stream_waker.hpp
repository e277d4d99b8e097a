// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace accel::core {

/// Makes a descriptor readable from a thread of a device's driver, which may outlive whoever sleeps on it.
class stream_waker {
  public:
    explicit stream_waker(int wake_fd) noexcept;
    ~stream_waker();
    stream_waker(const stream_waker&) = delete;
    stream_waker& operator=(const stream_waker&) = delete;
    /// What `device_stream::finish` is given, with the waker as its argument.
    static void wake(void* self) noexcept;

  private:
    int fd_;
};

}  // namespace accel::core
