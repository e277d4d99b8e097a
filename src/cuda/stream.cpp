// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream.hpp"

#include "cuda/driver.hpp"
#include "cuda/failure.hpp"

#include <algorithm>

#include <cuda_runtime_api.h>

namespace accel::cuda {
namespace {

constexpr std::size_t index_of(core::stream_mark what) noexcept {
    return static_cast<std::size_t>(what);
}

}  // namespace

result<std::unique_ptr<stream>> stream::create(int ordinal, stream_priority priority, std::atomic<bool>& failed) {
    std::unique_ptr<stream> made(new stream(ordinal, failed));
    const current_device current(ordinal);
    if (current.code() != cudaSuccess) return call_failed("no such GPU", current.code());
    int lowest = 0;
    int highest = 0;
    (void)cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    const int level = priority == stream_priority::high ? highest : lowest;
    if (const auto code = cudaStreamCreateWithPriority(&made->stream_, cudaStreamNonBlocking, level);
        code != cudaSuccess)
        return call_failed("cannot make a CUDA stream", code);
    for (auto& event : made->events_)
        if (const auto code = cudaEventCreate(&event); code != cudaSuccess)
            return call_failed(
                "cannot make a CUDA "
                "event",
                code);
    for (auto& event : made->piece_events_)
        if (const auto code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming); code != cudaSuccess)
            return call_failed("cannot make a CUDA event", code);
    return made;
}

stream::~stream() {
    const current_device current(ordinal_);
    if (stream_ != nullptr) {
        // A callback of finished work may still be under way.
        (void)cudaStreamSynchronize(stream_);
        (void)cudaStreamDestroy(stream_);
    }
    for (CUevent_st* event : events_)
        if (event != nullptr) (void)cudaEventDestroy(event);
    for (CUevent_st* event : piece_events_)
        if (event != nullptr) (void)cudaEventDestroy(event);
}

void stream::check(int code) noexcept {
    if (code == cudaSuccess) [[likely]]
        return;
    broken_ = true;
    if (is_fatal(code)) failed_.store(true, std::memory_order_relaxed);
}

void stream::begin() noexcept {
    broken_ = false;
    marked_ = {};
}

void stream::make_current() noexcept {
    check(cudaSetDevice(ordinal_));
}

void stream::copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    // The driver asks whether the current device, not the stream's, may access memory that another process shares.
    const current_device current(ordinal_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_));
}

void stream::copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
    copy(to, from, bytes);
    check(cudaEventRecord(piece_events_[(first_piece_ + pieces_) % max_pieces], stream_));
    ++pieces_;
}

unsigned stream::pieces_under_way() noexcept {
    // A failed piece has ended as well.
    while (pieces_ > 0 && cudaEventQuery(piece_events_[first_piece_]) != cudaErrorNotReady) {
        first_piece_ = (first_piece_ + 1) % max_pieces;
        --pieces_;
    }
    return pieces_;
}

void stream::mark(core::stream_mark what) noexcept {
    marked_[index_of(what)] = true;
    check(cudaEventRecord(events_[index_of(what)], stream_));
}

void stream::finish(void (*done)(void*), void* argument) noexcept {
    mark(core::stream_mark::finished);
    if (done != nullptr) check(cudaLaunchHostFunc(stream_, done, argument));
    // A kernel that the handler launched wrongly is reported here, and to nobody else.
    check(cudaGetLastError());
}

core::stream_progress stream::poll() noexcept {
    // The event of work that was refused may be an older exchange's.
    const cudaError_t code =
        broken_ ? cudaStreamQuery(stream_) : cudaEventQuery(events_[index_of(core::stream_mark::finished)]);
    if (code == cudaErrorNotReady) return core::stream_progress::running;
    check(code);
    return broken_ ? core::stream_progress::failed : core::stream_progress::done;
}

core::nanoseconds stream::between(core::stream_mark from, core::stream_mark to) noexcept {
    if (!marked_[index_of(from)] || !marked_[index_of(to)]) return {};
    float milliseconds = 0;
    const auto code = cudaEventElapsedTime(&milliseconds, events_[index_of(from)], events_[index_of(to)]);
    if (code != cudaSuccess) return {};
    return core::nanoseconds{static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6)};
}

}  // namespace accel::cuda
