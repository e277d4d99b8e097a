// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/service.hpp>
#include <accel_transport/status.hpp>

#include <cstdint>
#include <span>
#include <vector>

struct CUstream_st;

namespace accel::bench {

/// Where a kernel writes how long its turns took: `capacity` of each block. In the GPU's memory.
struct turn_log {
    std::uint32_t* cycles = nullptr;  ///< of the SM's clock, turn by turn
    std::uint32_t* seen = nullptr;    ///< turn by turn: ns of the GPU's clock since the header was seen
    std::uint32_t* counts = nullptr;  ///< turns, one a block
    double* cycles_a_ns = nullptr;    ///< one a block
    std::uint32_t capacity = 0;
};

/// Who serves the sessions of a block.
enum class turn_scope : std::uint8_t { warp, thread };

/// Nanoseconds, of all blocks.
struct turn_times {
    std::vector<double> from_look;  ///< since the start of the look that has found the request
    std::vector<double> from_seen;  ///< since it has: the exchange's arrival, by a clock that goes in steps of 32 ns
};

/// A kernel that echoes, one warp or one thread a block, until its service stops. A turn ends behind the doorbell of
/// its answer.
class turn_kernel {
  public:
    /// `unsupported`: there is no GPU.
    [[nodiscard]] static result<turn_kernel> prepare(std::uint32_t blocks, std::uint32_t capacity);
    turn_kernel(turn_kernel&& other) noexcept;
    turn_kernel& operator=(turn_kernel&&) = delete;
    ~turn_kernel();

    [[nodiscard]] result<void> launch(const device::service_ref& service, turn_scope scope, bool exclusive);
    [[nodiscard]] CUstream_st* stream() const noexcept { return stream_; }
    /// After its end.
    [[nodiscard]] result<turn_times> turns() const;

  private:
    turn_kernel() = default;
    turn_log log_;
    std::uint32_t blocks_ = 0;
    CUstream_st* stream_ = nullptr;
};

}  // namespace accel::bench
