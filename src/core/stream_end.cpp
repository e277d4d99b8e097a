// SPDX-License-Identifier: Apache-2.0
#include "core/stream_end.hpp"

#include "core/event_signal.hpp"

#include <array>
#include <memory>

#include <sys/eventfd.h>
#include <unistd.h>

namespace accel::core {
namespace {

/// Lowers itself when the stream has ended, which may be after nobody waits any more.
struct end_signal {
    int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    end_signal() = default;
    end_signal(const end_signal&) = delete;
    end_signal& operator=(const end_signal&) = delete;
    ~end_signal() { ::close(fd); }
};
using shared_signal = std::shared_ptr<end_signal>;

void tell(void* argument) {
    const std::unique_ptr<shared_signal> held(static_cast<shared_signal*>(argument));
    signal_event((*held)->fd);
}

}  // namespace

status wait_for_end(accelerator_device& gpu, CUstream_st* stream, nanoseconds deadline) {
    auto signal = std::make_shared<end_signal>();
    auto held = std::make_unique<shared_signal>(signal);
    if (auto asked = gpu.when_ended(stream, tell, held.get()); !asked) return asked.error().code;
    (void)held.release();  // NOLINT(bugprone-unused-return-value): `tell` has it now
    std::array<pollfd, 1> fds{{{signal->fd, POLLIN, 0}}};
    while (now() < deadline) {
        sleep_on(fds, deadline);
        if ((fds[0].revents & POLLIN) != 0) return status::ok;
    }
    return status::timed_out;
}

}  // namespace accel::core
