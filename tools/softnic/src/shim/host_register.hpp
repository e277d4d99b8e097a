// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace accel::softnic {

/// For who found the driver's cuMemHostRegister by name: a function that takes doorbell pages of softnic, and passes
/// the rest on to `real`. Thread-safe.
[[nodiscard]] void* stand_in_for_host_register(void* real);

}  // namespace accel::softnic
