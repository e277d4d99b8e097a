// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/grpc/described_file.hpp"

#include <vector>

namespace accel::examples::serving::wire {

/// The services of the gRPC door, with their supported methods and fields.
[[nodiscard]] std::vector<described_file> protocol_files();

}  // namespace accel::examples::serving::wire
