// SPDX-License-Identifier: Apache-2.0
#include "staging/stream_wait.hpp"

#include "core/event_signal.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include <fcntl.h>

namespace accel::core {
namespace {

/// Outlives the call that made it: the stream may end after nobody waits any more.
using shared_signal = std::shared_ptr<wake_signal>;

void tell_end(void* argument) {
    const std::unique_ptr<shared_signal> held(static_cast<shared_signal*>(argument));
    (*held)->set();
}

}  // namespace

stream_waker::stream_waker(int wake_fd) noexcept : fd_(::fcntl(wake_fd, F_DUPFD_CLOEXEC, 0)) {}

void stream_waker::wake(void* self) noexcept {
    signal_event(static_cast<stream_waker*>(self)->fd_.get());
}

status wait_for_end(accelerator_device& gpu, CUstream_st* stream, nanoseconds deadline) {
    auto signal = std::make_shared<wake_signal>();
    auto held = std::make_unique<shared_signal>(signal);
    if (auto asked = gpu.when_ended(stream, tell_end, held.get()); !asked) return asked.error().code;
    (void)held.release();  // NOLINT(bugprone-unused-return-value): `tell_end` has it now
    constexpr std::chrono::milliseconds look_interval{100};
    std::array<pollfd, 1> fds{{{signal->fd(), POLLIN, 0}}};
    while (now() < deadline) {
        sleep_on(fds, std::min(deadline, now() + look_interval));
        if ((fds[0].revents & POLLIN) != 0) return status::ok;
        if (!gpu.alive()) return status::device_lost;  // CUDA calls nobody back then
    }
    return status::timed_out;
}

result<void> copy_and_wait(accelerator_device& gpu, std::byte* to, const std::byte* from, std::size_t bytes,
                           nanoseconds deadline) {
    constexpr std::chrono::microseconds look_interval{50};
    auto stream = gpu.open_stream(stream_priority::normal);
    if (!stream) return stream.error();
    (*stream)->begin();
    for (std::size_t done = 0; done < bytes; done += device_stream::piece_bytes)
        (*stream)->copy(to + done, from + done, std::min(bytes - done, device_stream::piece_bytes));
    (*stream)->finish(nullptr, nullptr);
    while (now() < deadline) {
        const stream_progress seen = (*stream)->poll();
        if (seen == stream_progress::done) return {};
        if (seen == stream_progress::failed)
            return error{status::device_lost, 0, "the GPU failed while its memory was copied"};
        sleep_on({}, now() + look_interval);
    }
    return error{status::timed_out, 0, "the GPU is busy: its memory could not be copied in time"};
}

}  // namespace accel::core
