// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::access {

/// Bearer tokens (RFC 6750) of the clients that may use a door. Without any, every client may.
class token_list {
  public:
    static constexpr std::size_t longest = 256;  ///< bytes of a token

    /// One token a line; blanks around it do not count, nor do empty lines and those that begin with '#'.
    /// `invalid_argument` names the line that is no token; or there is none at all.
    [[nodiscard]] static result<token_list> parse(std::string_view text);
    /// The same of a file that others cannot read (`read_private_file`).
    [[nodiscard]] static result<token_list> read(const std::string& path);

    [[nodiscard]] bool empty() const noexcept { return tokens_.empty(); }
    /// Whether a header field "Authorization: `field`" has one of the tokens. Its time tells nothing of them but their
    /// number.
    [[nodiscard]] bool allow(std::string_view field) const noexcept;

  private:
    using padded = std::array<char, longest>;  ///< with zeros, which no token has
    std::vector<padded> tokens_;
};

}  // namespace accel::examples::serving::access
