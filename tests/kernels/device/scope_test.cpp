// SPDX-License-Identifier: Apache-2.0
// Several threads that serve or call together, as those of a warp or a block do.
#include "device/client_rig.hpp"
#include "team_scope.hpp"

namespace accel::tests {
namespace {

constexpr std::size_t bytes = 1000;
constexpr std::int64_t a_second = 1'000'000'000;

/// The part of thread `rank`.
void copy_part(std::byte* to, const std::byte* from, std::uint32_t rank) {
    for (std::size_t i = rank; i < bytes; i += team_scope::threads) to[i] = from[i];
}

TEST(device_scope, a_team_answers_one_request_together) {
    service_rig rig({false, gpu_engine::proxy});
    rig.listen();
    channel client = rig.connect();
    std::vector<std::byte> request(bytes);
    fill(request, 7);
    std::thread caller([&] {
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        EXPECT_TRUE(matches(answer->response, 7));
        EXPECT_EQ(client.call(request).error().code, status::overloaded);
    });
    device::exchange_ref exchange;  // one for all
    const device::service_ref service = rig.service->ref();
    team_scope::run([&](std::uint32_t rank) {
        EXPECT_EQ(device::wait<team_scope>(service, exchange, 10 * a_second), status::ok);
        copy_part(exchange.response, exchange.request, rank);
        EXPECT_EQ(device::reply<team_scope>(service, exchange, 1 << 20), status::message_too_large);
        EXPECT_EQ(device::reply<team_scope>(service, exchange, bytes), status::ok);
        status found = status::again;
        while (found == status::again) found = device::take<team_scope>(service, exchange);
        EXPECT_EQ(found, status::ok);
        EXPECT_EQ(device::fail<team_scope>(service, exchange, status::overloaded), status::ok);
    });
    caller.join();
}

TEST(device_scope, a_team_makes_one_call_together) {
    client_rig rig({{false, gpu_engine::proxy}, false});
    rig.listen();
    rig.connect();
    std::vector<std::byte> request(bytes);
    fill(request, 8);
    device::call_ref call;  // one for all
    const device::channel_ref channel = rig.channel->ref();
    team_scope::run([&](std::uint32_t rank) {
        ASSERT_EQ(device::begin<team_scope>(channel, call), status::ok);
        copy_part(call.request, request.data(), rank);
        EXPECT_EQ(device::submit<team_scope>(channel, call, bytes), status::ok);
        while (device::poll<team_scope>(channel, call) == status::again) std::this_thread::sleep_for(50us);
        EXPECT_EQ(device::wait<team_scope>(channel, call), status::ok);
        EXPECT_TRUE(matches({call.response, call.response_bytes}, 8)) << rank;
        EXPECT_EQ(device::cancel<team_scope>(channel, call), status::invalid_state);
        EXPECT_EQ(device::release<team_scope>(channel, call), status::ok);
        EXPECT_EQ(device::release<team_scope>(channel, call), status::invalid_state);
    });
}

}  // namespace
}  // namespace accel::tests
