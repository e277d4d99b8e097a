// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

namespace accel::examples::serving::doors::crowd {

/// What a process holds.
struct holdings {
    std::size_t descriptors = 0;
    std::size_t memory_kib = 0;  ///< resident
};

/// Looks at a process again and again.
class watch {
  public:
    explicit watch(pid_t process) : folder_("/proc/" + std::to_string(process)) {}

    void look();
    [[nodiscard]] holdings now() const;
    /// The most that was seen from look number `from` up to, but without, `to`.
    [[nodiscard]] holdings most(std::size_t from, std::size_t to) const;
    [[nodiscard]] std::size_t looks() const noexcept { return seen_.size(); }

  private:
    std::string folder_;
    std::vector<holdings> seen_;
};

}  // namespace accel::examples::serving::doors::crowd
