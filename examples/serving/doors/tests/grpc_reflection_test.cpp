// SPDX-License-Identifier: Apache-2.0
// Server reflection with clients that misbehave. What it says is for check_grpc_reflection.py.
#include "grpc_requests.hpp"

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::examples::serving::doors::tests {
namespace {

const std::string reflect = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

std::string request_for_file() {
    wire::writer out;
    out.text(3, "grpc_service.proto");
    return framed(out.take());
}

/// Sends a request over the stream, and has some of the answer.
bool has_file(grpc_client& one) {
    const std::size_t before = one.wire().body().size();
    one.wire().send(request_for_file(), false);
    if (!one.flush()) return false;
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (one.wire().body().size() == before && std::chrono::steady_clock::now() < deadline)
        if (one.finish(20ms)) return false;
    return one.wire().body().size() > before;
}

std::unique_ptr<grpc_client> reflecting_client(const door_rig& door, clients::grpc_flow flow = {}) {
    auto out = std::make_unique<grpc_client>(door.grpc(), flow);
    out->wire().open(reflect);
    EXPECT_TRUE(has_file(*out)) << out->wire().sentence();
    return out;
}

TEST(grpc_reflection, waiting_streams_leave_half_of_the_calls_to_others) {
    constexpr std::size_t calls = 8;
    const door_rig door{{"--max-calls", std::to_string(calls), "--body-grace", "500ms", "--max-connections", "100"}};
    std::vector<std::unique_ptr<grpc_client>> idle;
    for (std::size_t i = 0; i < calls; ++i) idle.push_back(reflecting_client(door));
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (idle.size() > calls / 2 && std::chrono::steady_clock::now() < deadline)
        std::erase_if(idle, [](const auto& each) { return each->finish(50ms); });
    ASSERT_EQ(idle.size(), calls / 2);
    grpc_client other{door.grpc()};
    for (int i = 0; i < 20; ++i) ASSERT_EQ(infer_when_free(other, "double"), ok) << other.wire().sentence();
    for (const auto& each : idle) EXPECT_TRUE(has_file(*each)) << "the others may go on";
}

TEST(grpc_reflection, stream_ends_when_its_client_takes_no_answers) {
    const door_rig door{{"--write-timeout", "1s"}};
    const auto one = reflecting_client(door, {.window = 100, .renewed = false});
    EXPECT_TRUE(one->finish(10s));
}

TEST(grpc_reflection, stream_ends_when_the_door_drains) {
    door_rig door;
    const auto one = reflecting_client(door);
    ::kill(door.id(), SIGTERM);
    EXPECT_TRUE(one->finish(9s)) << "before the drain's timeout";
    EXPECT_EQ(one->wire().code(), unavailable) << one->wire().sentence();
    EXPECT_TRUE(door.end().has_value()) << "it ends well";
}

}  // namespace
}  // namespace accel::examples::serving::doors::tests
