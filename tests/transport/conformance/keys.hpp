// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rig.hpp"

#include <string>

namespace accel::tests {

/// Key files of a server and of clients in a folder of their own that goes with this.
class key_folder {
  public:
    key_folder();
    key_folder(const key_folder&) = delete;
    key_folder& operator=(const key_folder&) = delete;
    ~key_folder();

    /// Makes NAME.key (0600) and NAME.pub in it; the path without the ending.
    std::string make_pair(const std::string& name);
    /// Makes NAME.key (0600) and NAME.pem, a certificate for these hosts ("IP:127.0.0.1") that is its own authority;
    /// the path without the ending.
    std::string certify(const std::string& name, const std::string& hosts);
    /// A file of it that authorises these pairs.
    std::string authorise(const std::string& file, const std::vector<std::string>& pairs);
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Options of a server and of its client that know each other.
    [[nodiscard]] security_options server();
    [[nodiscard]] security_options client();

  private:
    std::string path_;
};

}  // namespace accel::tests
