// SPDX-License-Identifier: Apache-2.0
// A GPU that fails while kernels serve or call there: a stand-in for it, which says so. Kernels that really fault are
// in tests/kernels/gpu/gpu_fault_test.cpp.
#include "device/client_rig.hpp"
#include "kernels/kernel_watch.hpp"

#include <array>
#include <chrono>

namespace accel::tests {
namespace {

using ::testing::HasSubstr;

/// How long a client may wait for what ends its session: less than for silence, and than for a call.
nanoseconds soon() {
    return patience(8s);
}

class service_gpu_loss : public ::testing::TestWithParam<service_setting> {
  protected:
    void SetUp() override {
        if (!has(GetParam().engine)) GTEST_SKIP() << "this device has no queues to drive";
        rig_.options.drain_timeout = until_hung();
        rig_.listen();
    }
    /// Kernels that take requests and answer none of them.
    void hold() {
        rig_.serve([this](const taken_request&) { ++taken_; });
    }
    void fail_gpu() { rig_.gpus().device().failed = true; }

    std::atomic<int> taken_{0};
    service_rig rig_{GetParam()};
};

TEST_P(service_gpu_loss, a_lost_gpu_ends_calls_and_sessions_with_device_lost) {
    hold();
    EXPECT_TRUE(rig_.gpus().device().watched);
    EXPECT_EQ(rig_.service->failure(), status::ok);
    channel waiting = rig_.connect();
    channel idle = rig_.connect();
    const auto call = waiting.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(waiting.submit(call->id, 100), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return taken_ == 1; }));

    const auto start = std::chrono::steady_clock::now();
    fail_gpu();
    std::array<completion, 1> done;
    ASSERT_EQ(waiting.wait(done, patience(10s)), 1U);
    EXPECT_EQ(done[0].status, status::device_lost) << to_string(done[0].status);
    EXPECT_TRUE(within(soon(), [&] {
        (void)idle.poll(done);
        return idle.begin().code() == status::device_lost;
    }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, soon());
    EXPECT_EQ(rig_.service->failure(), status::device_lost);
    EXPECT_TRUE(within(soon(), [&] { return rig_.service->statistics().sessions == 0; }));
    EXPECT_EQ(rig_.service->statistics().sessions_lost, 2U);
}

TEST_P(service_gpu_loss, a_service_without_its_gpu_refuses_clients_with_a_sentence) {
    fail_gpu();
    const auto refused = rig_.try_connect();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::device_lost);
    EXPECT_THAT(refused.error().message, HasSubstr("start the service in a new process"));
}

TEST_P(service_gpu_loss, a_lost_gpu_leaves_no_session_to_its_kernels) {
    // No kernel runs that could release the places.
    channel first = rig_.connect();
    channel second = rig_.connect();
    fail_gpu();
    EXPECT_TRUE(within(soon(), [&] { return rig_.service->statistics().sessions == 0; }));
    const auto start = std::chrono::steady_clock::now();
    rig_.service->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - start, soon()) << "waited for kernels";
}

INSTANTIATE_TEST_SUITE_P(by, service_gpu_loss,
                         ::testing::Values(service_setting{true, gpu_engine::direct},
                                           service_setting{true, gpu_engine::proxy},
                                           service_setting{true, gpu_engine::direct, owned}),
                         [](const auto& row) { return name_of(row.param); });

class client_gpu_loss : public ::testing::TestWithParam<gpu_engine> {
  protected:
    void SetUp() override {
        if (!has(GetParam())) GTEST_SKIP() << "this device has no queues to drive";
    }
    [[nodiscard]] client_case on_gpu(bool kernels_answer) const { return {{true, GetParam()}, kernels_answer}; }
};

TEST_P(client_gpu_loss, a_lost_gpu_ends_a_channel_of_kernels_and_its_session) {
    client_rig rig(on_gpu(false));
    rig.listen();
    rig.connect();
    ASSERT_EQ(call_once(rig.channel->ref(), 100, 1), status::ok);
    rig.gpus().device().failed = true;
    EXPECT_TRUE(within(soon(), [&] { return !rig.channel->connected(); }));
    EXPECT_EQ(rig.channel->failure().reason, status::device_lost);
    EXPECT_TRUE(within(soon(), [&] { return rig.handler->statistics().sessions == 0; }));
}

TEST_P(client_gpu_loss, a_lost_gpu_of_the_server_ends_calls_with_device_lost) {
    client_rig rig(on_gpu(true));
    rig.listen();
    rig.connect();
    device::call_ref call;
    ASSERT_EQ(submit_wish(rig.channel->ref(), call, held_call()), status::ok);
    ASSERT_TRUE(eventually(patience(5s), [&] { return rig.held() == 1; }));
    const auto start = std::chrono::steady_clock::now();
    rig.services.gpus().device().failed = true;
    EXPECT_EQ(await(rig.channel->ref(), call), status::device_lost);
    EXPECT_LT(std::chrono::steady_clock::now() - start, soon());
    EXPECT_EQ(device::release(rig.channel->ref(), call), status::ok);
    EXPECT_TRUE(within(soon(), [&] { return rig.channel->failure().reason == status::device_lost; }));
    rig.work.forgets = true;
}

INSTANTIATE_TEST_SUITE_P(by, client_gpu_loss, ::testing::Values(gpu_engine::direct, gpu_engine::proxy),
                         [](const auto& row) { return row.param == gpu_engine::proxy ? "proxy" : "direct"; });

TEST(gpu_blame, the_blame_for_a_broken_queue_pair_waits_for_the_gpu) {
    fake_device on(0);
    gpu::failure_blame waits;
    EXPECT_FALSE(waits.settled(&on));
    EXPECT_TRUE(within(soon(), [&] { return waits.settled(&on); })) << "it works: the adapter is to blame";
    gpu::failure_blame ends;
    EXPECT_FALSE(ends.settled(&on));
    on.failed = true;
    EXPECT_TRUE(ends.settled(&on));
    gpu::failure_blame none;
    EXPECT_TRUE(none.settled(nullptr)) << "kernels on the host";
}

TEST(gpu_ordering, gpu_resident_services_need_a_gpu_that_sees_arrivals_in_their_order) {
    service_rig rig({true, gpu_engine::proxy});
    rig.gpus().device().ordered = false;
    const auto refused = rig.try_listen();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr("host_slots=true"));
    rig.query = "?host_slots=true";
    EXPECT_TRUE(rig.try_listen().ok());
}

TEST(gpu_ordering, channels_of_kernels_need_a_gpu_that_sees_arrivals_in_their_order) {
    client_rig rig({{true, gpu_engine::proxy}, false});
    rig.listen();
    rig.gpus().device().ordered = false;
    const auto refused = rig.try_connect();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, status::unsupported);
    EXPECT_TRUE(rig.try_connect("?host_slots=true").ok());
}

}  // namespace
}  // namespace accel::tests
