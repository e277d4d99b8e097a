// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/context.hpp>

#include <algorithm>
#include <string>

namespace accel::bench {

/// Whether the scheme's device says that it is none.
[[nodiscard]] inline bool is_emulated(const context& ctx, const std::string& scheme) {
    const auto all = ctx.schemes();
    return std::any_of(all.begin(), all.end(), [&](const scheme_report& each) {
        return each.scheme == scheme && each.reason.find("emulated") != std::string::npos;
    });
}

}  // namespace accel::bench
