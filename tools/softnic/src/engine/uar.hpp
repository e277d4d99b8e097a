// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/command_page.hpp"

#include <cstdint>

namespace accel::softnic {

/// One page of doorbell registers, as the device sees it. The program maps the same page of the command file.
class uar_page {
  public:
    /// Throws std::system_error.
    uar_page(int command_file, std::uint32_t number) : number_(number), page_(command_file, number) {}

    [[nodiscard]] std::uint32_t number() const { return number_; }
    /// Takes the send doorbells that rang since the last call; a register holds only the newest, as MMIO that
    /// coalesces.
    [[nodiscard]] bool take_send_doorbell();
    [[nodiscard]] bool take_arm_doorbell();
    /// Would one of the two above be true?
    [[nodiscard]] bool rang() const;

    static constexpr std::size_t bytes = command_page::bytes;
    static constexpr std::uint32_t arm_offset = 0x20;
    static constexpr std::uint32_t send_offsets[]{0x800, 0x900, 0xa00, 0xb00};

  private:
    [[nodiscard]] bool take(std::uint32_t offset);

    std::uint32_t number_;
    command_page page_;
};

}  // namespace accel::softnic
