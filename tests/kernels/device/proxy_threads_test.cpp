// SPDX-License-Identifier: Apache-2.0
// Services and channels of one context whose kernels post by the same threads (`proxy_threads`).
#include "device/client_rig.hpp"
#include "device/service_rig.hpp"

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace accel::tests {
namespace {

/// How many threads of this process post for kernels.
int proxies_running() {
    int count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(each.path() / "comm") >> name;
        count += name == "accel-proxy" ? 1 : 0;
    }
    return count;
}

void expect_echoes(channel& client, int count) {
    std::array<std::byte, 200> request{};
    for (int i = 0; i < count; ++i) {
        request[0] = static_cast<std::byte>(i);
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        ASSERT_EQ(answer->response.size(), request.size());
        ASSERT_EQ(answer->response[0], request[0]);
    }
}

class device_proxy_threads : public ::testing::TestWithParam<service_sharing> {
  protected:
    service_rig& serve(std::uint32_t threads) {
        service_rig& made = *rigs_.emplace_back(
            std::make_unique<service_rig>(service_setting{false, gpu_engine::proxy, GetParam()}, &shared_));
        made.options.max_sessions = 4;
        made.query = "?proxy_threads=" + std::to_string(threads);
        made.listen();
        made.serve(echo);
        return made;
    }
    context shared_ = context::open().value();
    std::vector<std::unique_ptr<service_rig>> rigs_;
};

TEST_P(device_proxy_threads, services_share_as_many_proxy_threads_as_asked_for) {
    for (int i = 0; i < 3; ++i) serve(2);
    EXPECT_EQ(proxies_running(), 2);
    std::vector<channel> clients;
    for (const auto& each : rigs_) clients.push_back(each->connect());
    for (channel& each : clients) expect_echoes(each, 20);
    serve(0);
    EXPECT_EQ(proxies_running(), 3) << "and one of its own for a service that asked for none";
    clients.clear();
    rigs_.clear();
    EXPECT_EQ(proxies_running(), 0);
}

TEST_P(device_proxy_threads, a_proxy_thread_serves_while_services_come_and_go) {
    service_rig& stays = serve(1);
    std::atomic<bool> over{false};
    std::thread caller([&] {
        channel client = stays.connect();
        while (!over && !HasFailure()) expect_echoes(client, 10);
        EXPECT_GT(stays.service->statistics().replies, 0U);
    });
    for (int round = 0; round < effort(8); ++round) {
        service_rig& comes = serve(1);
        channel client = comes.connect();
        expect_echoes(client, 20);
        rigs_.pop_back();
    }
    over = true;
    caller.join();
    EXPECT_EQ(proxies_running(), 1);
}

TEST_P(device_proxy_threads, proxy_threads_count_the_time_of_their_services) {
    service_rig& one = serve(1);
    channel client = one.connect();
    auto last = one.service->statistics().cpu_proxy;
    EXPECT_TRUE(eventually(patience(10s), [&] {
        expect_echoes(client, 20);
        const auto now = one.service->statistics().cpu_proxy;
        EXPECT_GE(now, last);
        last = now;
        return now > 0ns;
    }));
}

INSTANTIATE_TEST_SUITE_P(with, device_proxy_threads,
                         ::testing::Values(service_sharing::shared, service_sharing::exclusive),
                         [](const auto& sharing) {
                             return sharing.param == service_sharing::shared ? "shared" : "exclusive";
                         });

/// Channels share the threads of the client's context.
TEST(device_proxy_threads_choice, channels_of_kernels_share_proxy_threads) {
    client_rig rig({{false, gpu_engine::proxy}, false});
    rig.listen();
    std::vector<gpu_channel> channels;
    for (int i = 0; i < 3; ++i) {
        auto made = rig.try_connect("?proxy_threads=1");
        ASSERT_TRUE(made.ok()) << made.error().message;
        channels.push_back(std::move(*made));
    }
    EXPECT_EQ(proxies_running(), 1);
    for (const gpu_channel& each : channels)
        for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(call_once(each.ref(), 100, i), status::ok);
    channels.clear();
    EXPECT_EQ(proxies_running(), 0);
}

}  // namespace
}  // namespace accel::tests
