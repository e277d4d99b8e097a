// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>

struct CUstream_st;

namespace accel::examples::serving {

/// Memory on a GPU between a model's preprocessing and its inference: a piece for each stream, which one request after
/// another uses. Any number of threads may ask at once.
class stream_buffers {
  public:
    /// `ctx` must outlive it. Pieces are made when a stream comes for the first time.
    stream_buffers(context& ctx, memory_kind where, std::size_t bytes) : ctx_(ctx), where_(where), bytes_(bytes) {}

    /// Empty: there is no memory for one more, or there are more than 256 streams. The first call for each stream takes
    /// long.
    [[nodiscard]] std::span<std::byte> of(CUstream_st* stream) noexcept;

  private:
    struct piece {
        std::atomic<CUstream_st*> owner{nullptr};
        region memory;
    };
    [[nodiscard]] std::span<std::byte> make(CUstream_st* stream) noexcept;

    context& ctx_;
    memory_kind where_;
    std::size_t bytes_;
    std::array<piece, 256> pieces_;
    std::mutex making_;
};

}  // namespace accel::examples::serving
