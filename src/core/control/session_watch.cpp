// SPDX-License-Identifier: Apache-2.0
#include "core/control/session.hpp"

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::core {

session_watch::session_watch() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

session_watch::~session_watch() {
    if (event_fd_ >= 0) ::close(event_fd_);
}

void session_watch::end(status why) noexcept {
    status expected = status::ok;
    if (!ended_.compare_exchange_strong(expected, why, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(event_fd_, &one, sizeof one));
}

}  // namespace accel::core
