// SPDX-License-Identifier: Apache-2.0
// A driver that does not return to the proxy's thread. What it may still use stays where it is when a service or a
// channel ends: queue pairs, registrations and slots.
#include "core/context_state.hpp"
#include "core/internals.hpp"
#include "device/bare_service.hpp"
#include "patience.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace accel::tests {
namespace {

/// How the driver of a device behaves that these tests open. Others of this program have the real one.
struct driver_state {
    std::atomic<bool> wanted{false};
    std::atomic<int (*)(ibv_cq*, int, ibv_wc*)> poll{nullptr};
    std::atomic<bool> stuck{false};
    std::atomic<bool> inside{false};  ///< a thread is stuck
    std::atomic<int> destroyed{0};    ///< queue pairs
};
driver_state driver;

int poll_or_wait(ibv_cq* queue, int most, ibv_wc* out) {
    while (driver.stuck) {
        driver.inside = true;
        std::this_thread::sleep_for(1ms);
    }
    driver.inside = false;
    return driver.poll.load()(queue, most, out);
}

template <class Function>
Function* next_function(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace accel::tests

// In libibverbs' place.
extern "C" ibv_pd* ibv_alloc_pd(ibv_context* of) {
    using namespace accel::tests;
    if (driver.wanted && of->ops.poll_cq != poll_or_wait) {
        driver.poll = of->ops.poll_cq;
        of->ops.poll_cq = poll_or_wait;
    }
    static auto* const real = next_function<ibv_pd*(ibv_context*)>("ibv_alloc_pd");
    return real(of);
}
extern "C" int ibv_destroy_qp(ibv_qp* which) {
    static auto* const real = accel::tests::next_function<int(ibv_qp*)>("ibv_destroy_qp");
    ++accel::tests::driver.destroyed;
    return real(which);
}

namespace accel::tests {
namespace {

class stuck_driver : public ::testing::TestWithParam<std::uint32_t> {
  protected:
    void SetUp() override { driver.wanted = true; }
    void TearDown() override { driver.wanted = false; }
    [[nodiscard]] static core::poller_options options(core::link_role role) {
        core::poller_options out;
        out.role = role;
        out.host = "127.0.0.1";
        return out;
    }
    [[nodiscard]] static gpu::kernel_setup kernels(std::uint32_t sessions) {
        gpu::kernel_setup out{nullptr, nullptr, sessions, shape, 10s};
        out.options.engine = gpu_engine::proxy;
        out.options.proxy_threads = GetParam();
        return out;
    }
    static void hold_the_thread() {
        driver.stuck = true;
        ASSERT_TRUE(eventually(patience(5s), [] { return driver.inside.load(); }));
        driver.destroyed = 0;
    }
    static void let_the_thread_go() {
        driver.stuck = false;
        EXPECT_TRUE(eventually(patience(5s), [] { return !driver.inside; }));
    }
    context context_ = context::open({.log = log_level::off}).value();
    core::backend& backend_ = *core::internals::state_of(context_)->find_backend("gpu");
    core::link_config config_ = [] {
        core::link_config out;
        out.geometry = shape;
        return out;
    }();
};

TEST_P(stuck_driver, queue_pairs_of_a_service_stay_while_the_driver_is_stuck) {
    auto service =
        dynamic_cast<gpu::kernel_backend&>(backend_).open_service(options(core::link_role::server), kernels(2));
    ASSERT_TRUE(service.ok()) << service.error().message;
    config_.role = core::link_role::server;
    auto link = (*service)->open_connection(config_);
    ASSERT_TRUE(link.ok()) << link.error().message;
    hold_the_thread();
    (*service)->kernels_ended();
    link->reset();
    service->reset();
    EXPECT_EQ(driver.destroyed, 0) << "the driver may still use it";
    let_the_thread_go();
    EXPECT_EQ(driver.destroyed, 0);
}

TEST_P(stuck_driver, queue_pairs_of_a_channel_stay_while_the_driver_is_stuck) {
    auto channel =
        dynamic_cast<gpu::kernel_backend&>(backend_).open_client(options(core::link_role::client), kernels(1));
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    auto link = (*channel)->open_connection(config_);
    ASSERT_TRUE(link.ok()) << link.error().message;
    hold_the_thread();
    link->reset();
    channel->reset();
    EXPECT_EQ(driver.destroyed, 0) << "the driver may still use it";
    let_the_thread_go();
    EXPECT_EQ(driver.destroyed, 0);
}

/// As before: what ends in order leaves nothing behind.
TEST_P(stuck_driver, queue_pairs_are_destroyed_when_the_driver_returns) {
    auto channel =
        dynamic_cast<gpu::kernel_backend&>(backend_).open_client(options(core::link_role::client), kernels(1));
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    driver.destroyed = 0;
    channel->reset();
    EXPECT_EQ(driver.destroyed, 1);
}

INSTANTIATE_TEST_SUITE_P(with, stuck_driver, ::testing::Values(0U, 1U), [](const auto& threads) {
    return threads.param == 0 ? "a_thread_of_its_own" : "a_shared_thread";
});

}  // namespace
}  // namespace accel::tests
