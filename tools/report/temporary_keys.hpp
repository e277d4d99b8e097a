// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <string>
#include <string_view>

namespace accel::report {

/// Fresh key pairs of a server and a client, in a folder that only this user can read and that goes
/// with it.
class temporary_keys {
  public:
    [[nodiscard]] static result<temporary_keys> make();
    temporary_keys(temporary_keys&& other) noexcept : folder_(std::move(other.folder_)) { other.folder_.clear(); }
    temporary_keys& operator=(temporary_keys&&) = delete;
    ~temporary_keys();

    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
    /// "?key_file=…&…" for behind a URI.
    [[nodiscard]] std::string server_options() const;
    [[nodiscard]] std::string client_options() const;

  private:
    explicit temporary_keys(std::string folder) noexcept : folder_(std::move(folder)) {}

    std::string folder_;
};

}  // namespace accel::report
