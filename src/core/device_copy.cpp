// SPDX-License-Identifier: Apache-2.0
#include "core/device_copy.hpp"

#include "core/event_signal.hpp"

#include <algorithm>
#include <chrono>

namespace accel::core {

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
