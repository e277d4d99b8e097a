// SPDX-License-Identifier: Apache-2.0
#include "handler_memory.hpp"
#include "keys.hpp"

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace {

/// Sockets by the thousand need more descriptors than the usual soft limit.
void raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool everything_was_skipped() {
    const auto& all = *::testing::UnitTest::GetInstance();
    return all.test_to_run_count() > 0 && all.skipped_test_count() == all.test_to_run_count();
}

}  // namespace

int main(int argc, char** argv) {
    constexpr int skipped = 77;
    raise_descriptor_limit();
    if (const std::string missing = accel::tests::missing_handler_memory(); !missing.empty()) {
        std::cerr << "skipped: " << missing << '\n';
        return skipped;
    }
    std::optional<accel::tests::key_folder> keys;
    if (std::getenv("ACCEL_TEST_ENCRYPT") != nullptr) {
        keys.emplace();
        (void)setenv("ACCEL_TEST_KEYS", keys->path().c_str(), 1);
    }
    ::testing::InitGoogleTest(&argc, argv);
    const int outcome = RUN_ALL_TESTS();
    if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0 && !GTEST_FLAG_GET(list_tests)) {
        std::cerr << "the filter selects no test\n";
        return 1;
    }
    return outcome == 0 && everything_was_skipped() ? skipped : outcome;
}
