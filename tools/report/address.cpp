// SPDX-License-Identifier: Apache-2.0
#include "report/address.hpp"

#include <charconv>

#include <fmt/format.h>

namespace accel::report {
namespace {

error bad_address(std::string_view text, std::string_view what) {
    return {status::invalid_argument, 0,
            fmt::format("'{}' is not a valid address: {}; write HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464, or "
                        "*:9464 for every address of this machine",
                        text, what)};
}

}  // namespace

result<listen_address> read_address(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad_address(text, "the port is missing");
    std::string_view host = text.substr(0, colon);
    listen_address out;
    out.bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (out.bracketed) host = host.substr(1, host.size() - 2);
    if (host.empty()) return bad_address(text, "the host is missing");
    const bool v6 = host.find(':') != std::string_view::npos;
    if (v6 != out.bracketed || host.find_first_of("[], ;+") != std::string_view::npos)
        return bad_address(text, fmt::format("'{}' is not a valid host", host));
    const std::string_view port = text.substr(colon + 1);
    const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (failure != std::errc{} || end != port.data() + port.size())
        return bad_address(text, fmt::format("port '{}' is not a number from 0 to 65535", port));
    out.host = host;
    return out;
}

std::string check_address(const std::string& text) {
    const auto read = read_address(text);
    return read ? std::string{} : read.error().message;
}

}  // namespace accel::report
