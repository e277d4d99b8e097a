// SPDX-License-Identifier: Apache-2.0
#include "core/stream_waker.hpp"

#include "core/event_signal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace accel::core {

stream_waker::stream_waker(int wake_fd) noexcept : fd_(::fcntl(wake_fd, F_DUPFD_CLOEXEC, 0)) {}

stream_waker::~stream_waker() {
    ::close(fd_);
}

void stream_waker::wake(void* self) noexcept {
    signal_event(static_cast<stream_waker*>(self)->fd_);
}

}  // namespace accel::core
