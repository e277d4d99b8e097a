// SPDX-License-Identifier: Apache-2.0
// The gRPC door between SIGTERM and its end.
#include "door_rig.hpp"

#include <csignal>
#include <string>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors::tests {
namespace {

constexpr const char* check_path = "/grpc.health.v1.Health/Check";

/// HealthCheckResponse: 1 is SERVING, 2 is NOT_SERVING.
std::string state_of(grpc_client& door) {
    EXPECT_EQ(door.call(check_path, {}), 0);
    return std::string{door.wire().message()};
}

TEST(grpc_drain, draining_door_reports_not_ready_and_serves_all_connections) {
    door_rig door{{"--drain-delay", "3600s", "--drain-timeout", "1s"}};
    grpc_client old{door.grpc()};
    ASSERT_EQ(state_of(old), "\x08\x01");
    ::kill(door.id(), SIGTERM);
    while (state_of(old) == "\x08\x01") {
    }
    grpc_client fresh{door.grpc()};
    for (grpc_client* const one : {&old, &fresh}) {
        EXPECT_EQ(state_of(*one), "\x08\x02");
        EXPECT_EQ(one->call(std::string{service} + "ServerReady", {}), 0);
        EXPECT_EQ(one->wire().message(), "");
        EXPECT_EQ(one->infer("double", 3), 0);
        EXPECT_TRUE(one->has_twice(3));
    }
    EXPECT_TRUE(door.end().has_value()) << "another signal ends it well";
}

}  // namespace
}  // namespace accel::examples::serving::doors::tests
