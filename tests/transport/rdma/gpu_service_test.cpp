// SPDX-License-Identifier: Apache-2.0
#include "gpu/service_suite.hpp"

namespace accel::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(schemes, gpu_service, ::testing::Values("gdr", "rdma"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace accel::tests
