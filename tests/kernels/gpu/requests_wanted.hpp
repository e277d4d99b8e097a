// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace accel::tests {

/// How many requests a test makes: so many as it needs to see what it is about, or ACCEL_TEST_REQUESTS.
inline std::uint64_t requests_wanted(std::uint64_t enough) {
    const char* const text = std::getenv("ACCEL_TEST_REQUESTS");
    return text == nullptr ? enough : std::strtoull(text, nullptr, 10);
}

}  // namespace accel::tests
