// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace accel::report {

/// Where a program listens, other than by a URI.
struct listen_address {
    std::string host;  ///< `*`: every address of this machine; an IPv6 address is without its brackets
    std::uint16_t port = 0;
    bool bracketed = false;  ///< an IPv6 address
};

/// Reads HOST:PORT or [ADDRESS]:PORT; port 0: any free one. `invalid_argument`, with the words that URIs have.
[[nodiscard]] result<listen_address> read_address(std::string_view text);

/// The same as a check of a command line: a sentence about what is wrong, or nothing.
[[nodiscard]] std::string check_address(const std::string& text);

}  // namespace accel::report
