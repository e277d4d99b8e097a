// SPDX-License-Identifier: Apache-2.0
#include "gpu/service_suite.hpp"

namespace accel::tests {
namespace {

#ifdef ACCEL_ZMQ
const auto schemes_of_services = ::testing::Values("local", "tcp", "zmq");
#else
const auto schemes_of_services = ::testing::Values("local", "tcp");
#endif
INSTANTIATE_TEST_SUITE_P(schemes, gpu_service, schemes_of_services, [](const auto& row) { return row.param; });

}  // namespace
}  // namespace accel::tests
