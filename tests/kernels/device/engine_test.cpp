// SPDX-License-Identifier: Apache-2.0
// How a GPU-resident service reaches its device: what is chosen, why, and what only the proxy has.
#include "device/service_rig.hpp"

#include <array>
#include <atomic>
#include <iostream>

namespace accel::tests {
namespace {

class device_engine : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
    }
};

void expect_calls(channel& client, int count) {
    const std::array<std::byte, 100> request{};
    for (int i = 0; i < count; ++i) {
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        ASSERT_EQ(answer->response.size(), request.size());
    }
}

TEST_P(device_engine, a_service_uses_the_engine_that_was_asked_for) {
    service_rig rig(GetParam());
    rig.listen();
    EXPECT_EQ(rig.service->engine(), GetParam().engine);
    EXPECT_FALSE(rig.service->engine_reason().empty());
    rig.serve(echo);
    channel client = rig.connect();
    expect_calls(client, 20);
    const bool proxied = GetParam().engine == gpu_engine::proxy;
    // Its first millisecond is spent spinning, and so is the one after each request; ticks are 10 ms long.
    const auto proxy_has_run = [&] {
        expect_calls(client, 20);
        return rig.service->statistics().cpu_proxy > 0ns;
    };
    EXPECT_EQ(within(proxied ? until_hung() : 50ms, proxy_has_run), proxied);
}

/// A client goes while a kernel works for it: its place is not given to another before the kernel has ended.
TEST_P(device_engine, a_place_stays_taken_while_a_kernel_holds_its_request) {
    service_rig rig(GetParam());
    rig.options.max_sessions = 1;
    rig.listen();
    std::atomic<bool> holds{false};
    std::atomic<bool> may_end{false};
    rig.serve([&](const taken_request& request) {
        if (may_end) return echo(request);
        holds = true;
        while (!may_end) std::this_thread::sleep_for(1ms);
        (void)request.reply(0);  // which may be told to leave, and does not arrive
    });
    rig.serve(echo);  // takes commands meanwhile
    {
        channel goes = rig.connect();
        while (!holds) {
            const auto call = goes.begin();
            ASSERT_EQ(call.code(), status::ok);
            ASSERT_EQ(goes.submit(call->id, 10), status::ok);
            std::array<completion, 1> done;
            (void)goes.wait(done, 10ms);
        }
    }
    EXPECT_TRUE(eventually(patience(5s), [&] { return rig.service->statistics().sessions == 0; }));
    EXPECT_EQ(rig.try_connect().error().code, status::overloaded);
    may_end = true;
    result<channel> next = rig.try_connect();
    EXPECT_TRUE(eventually(patience(5s), [&] {
        if (!next) next = rig.try_connect();
        return next.ok();
    }));
    ASSERT_TRUE(next.ok());
    expect_calls(*next, 20);
}

INSTANTIATE_TEST_SUITE_P(on, device_engine, service_settings(),
                         [](const auto& setting) { return name_of(setting.param); });

TEST(device_engine_proxy, the_proxy_naps_without_calls) {
    service_rig rig({false, gpu_engine::proxy});
    rig.listen();
    rig.serve(echo);
    channel client = rig.connect();
    expect_calls(client, 20);
    const auto cpu = [&] { return rig.service->statistics().cpu_proxy; };
    std::this_thread::sleep_for(100ms);
    const auto before = cpu();
    std::this_thread::sleep_for(2s);
    const auto used = cpu() - before;
    std::cout << "CPU of the proxy's thread in two idle seconds: "
              << std::chrono::duration<double, std::milli>(used).count() << " ms\n";
    EXPECT_LT(used, 500ms);
    expect_calls(client, 20);
}

TEST(device_engine_choice, automatic_is_direct_where_the_device_has_queues) {
    for (const bool on_gpu : {false, true}) {
        service_rig rig({on_gpu, gpu_engine::automatic});
        rig.listen();
        const bool direct = has(gpu_engine::direct);
        EXPECT_EQ(rig.service->engine(), direct ? gpu_engine::direct : gpu_engine::proxy)
            << rig.service->engine_reason();
    }
}

TEST(device_engine_choice, falls_back_where_the_gpu_maps_no_registers) {
    if (!has(gpu_engine::direct)) GTEST_SKIP() << "this device has no queues to drive";
    service_rig rig({true, gpu_engine::automatic});
    rig.gpus().refuses_registers = true;
    rig.listen();
    EXPECT_EQ(rig.service->engine(), gpu_engine::proxy);
    EXPECT_THAT(rig.service->engine_reason(), ::testing::HasSubstr("a fake GPU that maps no registers"));
    rig.serve(echo);
    channel client = rig.connect();
    expect_calls(client, 20);
    rig.stop();
    EXPECT_EQ(rig.pages_pinned(), 0);
}

TEST(device_engine_choice, an_explicit_engine_that_does_not_work_is_an_error) {
    if (!has(gpu_engine::direct)) GTEST_SKIP() << "this device has no queues to drive";
    service_rig rig({true, gpu_engine::direct});
    rig.gpus().refuses_registers = true;
    auto made = rig.try_listen();
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, status::unsupported);
    EXPECT_THAT(made.error().message, ::testing::HasSubstr("maps no registers"));
    EXPECT_EQ(rig.pages_pinned(), 0);
    rig.gpus().refuses_registers = false;
    rig.listen();
    EXPECT_EQ(rig.service->engine(), gpu_engine::direct);
}

TEST(device_engine_choice, the_uri_selects_the_engine) {
    service_rig rig({false, gpu_engine::automatic});
    for (const std::string query : {"?engine=proxy", "?direct=false", "?engine=auto&direct=false"}) {
        rig.query = query;
        rig.listen();
        EXPECT_EQ(rig.service->engine(), gpu_engine::proxy) << query;
        rig.stop();
    }
}

/// As the doctor has it.
TEST(device_engine_choice, schemes_report_the_engine_beforehand) {
    service_rig rig({true, gpu_engine::automatic});
    const auto told = [&] {
        for (const auto& each : rig.server_context.schemes())
            if (each.scheme == "gpu") return each.reason;
        return std::string{};
    };
    const bool direct = has(gpu_engine::direct);
    EXPECT_THAT(told(), ::testing::HasSubstr(direct ? "engine direct" : "engine proxy"));
    rig.gpus().refuses_registers = true;
    EXPECT_THAT(told(), ::testing::HasSubstr("engine proxy"));
    EXPECT_EQ(rig.pages_pinned(), 0);
}

}  // namespace
}  // namespace accel::tests
