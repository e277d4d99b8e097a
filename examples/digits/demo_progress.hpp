// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace accel::examples::digits {

/// Says on standard error how far the demo is: one live line on a terminal, else a line for each finished
/// run.
class demo_progress {
  public:
    demo_progress() noexcept;
    void update(std::string_view what, std::uint64_t done, std::uint64_t all);
    /// Ends what `update` was showing.
    void finish(std::string_view sentence);

  private:
    bool terminal_;
};

}  // namespace accel::examples::digits
