// SPDX-License-Identifier: Apache-2.0
#include "report/metrics_endpoint.hpp"
#include "report/program.hpp"

#include <utility>

#include <fmt/format.h>

namespace accel::report {

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
