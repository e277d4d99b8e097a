// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace accel::report {

std::string check_metrics_option(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    std::string wrong = fmt::format("'{}' is no address: write 127.0.0.1:9464 or [::1]:9464", text);
    if (colon == std::string::npos || colon == 0) return wrong;
    const std::string_view port = std::string_view(text).substr(colon + 1);
    std::uint16_t number = 0;
    const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), number);
    const bool host_is_one = text.find_first_of(", ;+") == std::string::npos &&
                             (text.front() == '[' ? text[colon - 1] == ']' : text.find(':') == colon);
    const bool good = failure == std::errc{} && end == port.data() + port.size() && host_is_one;
    return good ? std::string{} : wrong;
}

metrics_choice open_metrics(const char* program, const context& ctx, const std::string& at, more_metrics more) {
    if (at.empty()) return {};
    auto opened = metrics_endpoint::open(ctx, at, std::move(more));
    if (!opened) {
        complain(program, opened.error());
        return {nullptr, true};
    }
    fmt::print("metrics http://{}/metrics\n", (*opened)->address());
    return {std::move(*opened), false};
}

}  // namespace accel::report
