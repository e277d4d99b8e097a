// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/child_process.hpp"

#include <filesystem>
#include <functional>
#include <string>

#include <sys/types.h>

namespace accel::bench {

/// nginx as one process in the foreground, with settings and a folder of its own; both end with it.
class nginx {
  public:
    /// `settings` gets the folder, for files, and the port to listen at; lines that name no files of other folders.
    using settings_of = std::function<std::string(const std::string& folder, const std::string& port)>;
    /// Returns once it takes connections. `peer_lost`: it does not start.
    [[nodiscard]] static result<nginx> start(const std::string& program, const settings_of& settings);
    nginx(nginx&& other) noexcept = default;
    nginx& operator=(nginx&&) = delete;
    ~nginx();

    [[nodiscard]] const std::string& port() const noexcept { return port_; }
    [[nodiscard]] pid_t id() const noexcept { return process_.id(); }

  private:
    nginx(report::child_process process, std::string port, std::filesystem::path folder)
        : process_(std::move(process)), port_(std::move(port)), folder_(std::move(folder)) {}

    report::child_process process_;
    std::string port_;
    std::filesystem::path folder_;  ///< empty: moved from
};

}  // namespace accel::bench
