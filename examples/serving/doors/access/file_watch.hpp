// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace accel::examples::serving::access {

/// Notices when files are written, replaced or removed. One thread.
class file_watch {
  public:
    /// To be made before the files are read.
    explicit file_watch(std::vector<std::string> paths);

    [[nodiscard]] bool empty() const noexcept { return paths_.empty(); }
    /// True: the files differ from those at the last `note_reading`, and have not changed since the last call, so none
    /// is half written. To be called a few times a second.
    [[nodiscard]] bool changed();
    /// To be called before the files are read again.
    void note_reading();

  private:
    [[nodiscard]] std::string stamps() const;

    std::vector<std::string> paths_;
    std::string read_;
    std::string seen_;
};

}  // namespace accel::examples::serving::access
