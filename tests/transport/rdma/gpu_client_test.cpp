// SPDX-License-Identifier: Apache-2.0
#include "gpu/client_suite.hpp"

namespace accel::tests {
namespace {

INSTANTIATE_TEST_SUITE_P(schemes, gpu_client, ::testing::Values("gdr", "rdma"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace accel::tests
