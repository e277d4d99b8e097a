// SPDX-License-Identifier: Apache-2.0
#include "staging/gpu_staging.hpp"

#include <algorithm>
#include <utility>

namespace accel::core {

gpu_staging::gpu_staging(std::uint32_t slots, int wake_fd) : calls_(slots) {
    listed_.reserve(slots);
    if (wake_fd >= 0) waker_ = std::make_unique<stream_waker>(wake_fd);
}

status gpu_staging::prepare(std::uint32_t slot, accelerator_device& gpu) {
    staged_call& call = calls_[slot];
    if (!gpu.alive()) return status::device_lost;
    if (call.stream != nullptr && call.gpu->alive()) return status::ok;
    auto opened = gpu.open_stream(stream_priority::normal);
    if (!opened) return opened.code();
    call.stream = std::move(*opened);
    call.gpu = &gpu;
    return status::ok;
}

void gpu_staging::start(std::uint32_t slot, staging_phase phase, std::byte* to, const std::byte* from,
                        std::size_t bytes) noexcept {
    staged_call& call = calls_[slot];
    call.phase = phase;
    device_stream& stream = *call.stream;
    stream.begin();
    stream.mark(stream_mark::start);
    call.copy = {to, from, bytes};
    call.fed = false;
    feed(call);
    list(slot);
}

void gpu_staging::wait_for_link(std::uint32_t slot) noexcept {
    calls_[slot].phase = staging_phase::copied_out;
    list(slot);
}

void gpu_staging::list(std::uint32_t slot) noexcept {
    staged_call& call = calls_[slot];
    if (!call.listed) listed_.push_back(slot);
    call.listed = true;
}

void gpu_staging::feed(staged_call& call) noexcept {
    device_stream& stream = *call.stream;
    call.fed = call.copy.feed(stream);
    if (!call.fed) return;
    stream.mark(stream_mark::copied_in);
    stream.finish(waker_ == nullptr ? nullptr : &stream_waker::wake, waker_.get());
}

stream_progress gpu_staging::go_on(staged_call& call) noexcept {
    if (!call.fed) feed(call);
    return call.fed ? call.stream->poll() : stream_progress::running;
}

bool gpu_staging::wakes() const noexcept {
    return waker_ != nullptr && std::all_of(listed_.begin(), listed_.end(), [this](std::uint32_t slot) {
               const staged_call& call = calls_[slot];
               return call.phase != staging_phase::copied_out && (call.fed || !call.copying());
           });
}

}  // namespace accel::core
