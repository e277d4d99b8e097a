// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"

#include <array>
#include <atomic>
#include <memory>

struct CUevent_st;

namespace accel::cuda {

/// A non-blocking CUDA stream and one event for each mark.
class stream final : public core::device_stream {
  public:
    /// `failed` is set once the device is of no more use; it outlives the stream.
    [[nodiscard]] static result<std::unique_ptr<stream>> create(int ordinal, stream_priority priority,
                                                                std::atomic<bool>& failed);
    ~stream() override;
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    [[nodiscard]] CUstream_st* native() const noexcept override { return stream_; }
    void begin() noexcept override;
    void make_current() noexcept override;
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept override;
    void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes) noexcept override;
    [[nodiscard]] unsigned pieces_under_way() noexcept override;
    void mark(core::stream_mark what) noexcept override;
    void finish(void (*done)(void*), void* argument) noexcept override;
    [[nodiscard]] core::stream_progress poll() noexcept override;
    [[nodiscard]] core::nanoseconds between(core::stream_mark from, core::stream_mark to) noexcept override;

  private:
    stream(int ordinal, std::atomic<bool>& failed) noexcept : ordinal_(ordinal), failed_(failed) {}
    void check(int code) noexcept;

    int ordinal_;
    std::atomic<bool>& failed_;
    bool broken_ = false;  ///< a call failed since `begin`
    CUstream_st* stream_ = nullptr;
    std::array<CUevent_st*, core::stream_mark_count> events_{};
    std::array<bool, core::stream_mark_count> marked_{};
    std::array<CUevent_st*, max_pieces> piece_events_{};  ///< a ring
    unsigned first_piece_ = 0;                            ///< the oldest that has not ended, as far as known
    unsigned pieces_ = 0;                                 ///< from there on
};

}  // namespace accel::cuda
