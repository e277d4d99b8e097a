// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/status.hpp>

#include <array>
#include <cstdint>

namespace accel::examples::gateway {

/// What a gateway has done. Of its thread.
struct counts {
    std::uint64_t requests = 0;
    std::uint64_t answers = 0;                            ///< with a response
    std::array<std::uint64_t, status_count> errors = {};  ///< answers with a failure, by status
    std::uint64_t retried = 0;                            ///< taken by another server than the one asked first
    std::uint64_t queued = 0;                             ///< had to wait for a free slot
    std::uint64_t request_bytes = 0;
    std::uint64_t response_bytes = 0;
    std::uint64_t payload_copies = 0;  ///< by this gateway, of requests and of responses
};

}  // namespace accel::examples::gateway
