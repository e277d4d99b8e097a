// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/command_page.hpp"

#include <cstdint>

namespace accel::softnic {

/// The device's clock, as programs read it without a call: a register with the time of completions' timestamps, and
/// what turns such a time into one of the wall clock. One for each open context.
class device_clock {
  public:
    /// Throws std::system_error.
    explicit device_clock(int command_file);

    /// It is `now_ns` for the device. The register stands still between two calls.
    void show(std::uint64_t now_ns);

    /// Places in the command file; page numbers of doorbells are larger.
    static constexpr std::uint32_t register_page = 5 << 8;  ///< MLX5_IB_MMAP_CORE_CLOCK
    static constexpr std::uint32_t wall_page = 7 << 8;      ///< MLX5_IB_MMAP_CLOCK_INFO, version 1
    static constexpr std::uint32_t pages_end = wall_page + 1;

  private:
    void compare_with_wall(std::uint64_t now_ns);

    command_page register_;
    command_page wall_;
    std::uint64_t compare_at_ = 0;
};

}  // namespace accel::softnic
