// SPDX-License-Identifier: Apache-2.0
#include "serving/model_server/stream_buffers.hpp"

#include <utility>

namespace accel::examples::serving {

std::span<std::byte> stream_buffers::of(CUstream_st* stream) noexcept {
    for (piece& each : pieces_) {
        CUstream_st* const owner = each.owner.load(std::memory_order_acquire);
        if (owner == stream) return {each.memory.data(), bytes_};
        if (owner == nullptr) return make(stream);
    }
    return {};
}

/// A stream belongs to one worker, so no other thread makes its piece meanwhile.
std::span<std::byte> stream_buffers::make(CUstream_st* stream) noexcept {
    const std::lock_guard lock(making_);
    for (piece& each : pieces_) {
        if (each.owner.load(std::memory_order_relaxed) != nullptr) continue;
        auto made = ctx_.allocate(bytes_, where_);
        if (!made) return {};
        each.memory = std::move(*made);
        each.owner.store(stream, std::memory_order_release);
        return {each.memory.data(), bytes_};
    }
    return {};
}

}  // namespace accel::examples::serving
