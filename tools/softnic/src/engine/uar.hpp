// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/command_page.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::softnic {

struct queue_pair;

/// One page of doorbell registers, as the device sees it, and the queue pairs that ring there. The program maps the
/// same page of the command file.
class uar_page {
  public:
    /// Throws std::system_error.
    uar_page(int command_file, std::uint32_t number) : number_(number), page_(command_file, number) {}

    [[nodiscard]] std::uint32_t number() const { return number_; }
    /// Takes what was written to a register since the last call, or 0. A register holds only the newest doorbell, as
    /// MMIO that coalesces.
    [[nodiscard]] std::uint64_t take(std::uint32_t offset);
    /// Would any register have something to take?
    [[nodiscard]] bool rang() const;

    void add(queue_pair& qp) { users_.push_back(&qp); }
    void remove(const queue_pair& qp);
    /// From now on next_users() names every queue pair once more.
    void look_at_all() { left_ = users_.size(); }
    /// Some of the queue pairs to look at. Valid until the next add() or remove().
    [[nodiscard]] std::span<queue_pair* const> next_users();
    [[nodiscard]] bool has_users_left() const { return left_ != 0; }

    static constexpr std::size_t bytes = command_page::bytes;
    static constexpr std::uint32_t arm_offset = 0x20;
    static constexpr std::uint32_t send_offsets[]{0x800, 0x900, 0xa00, 0xb00};
    static constexpr std::size_t users_at_once = 16;

  private:
    std::uint32_t number_;
    command_page page_;
    std::vector<queue_pair*> users_;
    std::size_t next_ = 0;  ///< in users_
    std::size_t left_ = 0;  ///< to look at, from `next_` on and around the end
};

}  // namespace accel::softnic
