// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/backend.hpp"

#include <accel_transport/options.hpp>
#include <accel_transport/status.hpp>

namespace accel::core {

/// Whether a scheme, and this kernel, can keep to the rate; `unsupported` with a sentence if not. 0 always.
[[nodiscard]] result<void> check_pacing(bit_rate wanted, const backend& scheme);

}  // namespace accel::core
