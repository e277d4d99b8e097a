// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace accel::tests {

/// How queues of mlx5 devices are driven; `ACCEL_TEST_DIRECT=0`: by libibverbs, as those of all others.
[[nodiscard]] inline bool drives_directly() {
    const char* const text = std::getenv("ACCEL_TEST_DIRECT");
    return text == nullptr || *text != '0';
}

/// `ACCEL_TEST_SCHEME`: what serves where a test is of one scheme on an RDMA device.
[[nodiscard]] inline std::string scheme_on_device() {
    const char* const text = std::getenv("ACCEL_TEST_SCHEME");
    return text == nullptr ? "rdma" : text;
}

}  // namespace accel::tests
