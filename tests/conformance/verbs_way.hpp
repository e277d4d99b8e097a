#pragma once

#include <cstdlib>

namespace accel::tests {

/// How queues of mlx5 devices are driven; `ACCEL_TEST_DIRECT=0`: by libibverbs, as those of all others.
[[nodiscard]] inline bool drives_directly() {
    const char* const text = std::getenv("ACCEL_TEST_DIRECT");
    return text == nullptr || *text != '0';
}

}  // namespace accel::tests
