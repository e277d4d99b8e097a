// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/child_process.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace accel::tests {

/// Bytes of a process that are in RAM; 0: it is gone.
[[nodiscard]] std::size_t resident_bytes_of(pid_t process);

/// A process that listens where it has listened at first, also after it was killed.
class restarted_process {
  public:
    /// `arguments_at`: its command line, by the URI at which it listens. `ready`: what stands before the endpoint on
    /// the line that says that it listens.
    restarted_process(std::function<std::vector<std::string>(const std::string&)> arguments_at, std::string ready,
                      const std::string& first_uri);

    /// What clients connect to.
    [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
    void kill();
    /// True: it listens again.
    [[nodiscard]] bool start();
    /// From now on its memory should not grow: it is warm.
    void note_memory();
    /// The most that memory has grown from a note to a kill, or until now.
    [[nodiscard]] std::size_t growth_bytes();

  private:
    [[nodiscard]] bool start_at(const std::string& uri);

    std::function<std::vector<std::string>(const std::string&)> arguments_at_;
    std::string ready_;
    std::string uri_;
    std::optional<report::child_process> process_;
    std::size_t noted_ = 0;  ///< 0: not yet in this life
    std::size_t growth_ = 0;
};

}  // namespace accel::tests
