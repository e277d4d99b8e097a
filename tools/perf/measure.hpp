// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/commands.hpp"
#include "perf/output.hpp"

#include <accel_transport/context.hpp>

#include <string>
#include <vector>

namespace accel::perf {

/// Connects to `uri` and runs what `chosen` asks for, size by size.
[[nodiscard]] result<std::vector<outcome>> measure(context& ctx, const std::string& uri, const settings& chosen);

}  // namespace accel::perf
