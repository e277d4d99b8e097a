// SPDX-License-Identifier: Apache-2.0
// Servers that die or fall silent while a channel of a GPU has calls open (threads of the host make them).
#include "conformance/peer_process.hpp"
#include "core/internals.hpp"
#include "device/client_rig.hpp"

#include <csignal>

namespace accel::tests {
namespace {

class device_client_death : public ::testing::TestWithParam<bool> {
  protected:
    /// All slots in flight, at a server that answers nothing.
    void open(nanoseconds peer_timeout) {
        if (GetParam()) core::internals::state_of(context_)->replace_devices(fake_);
        gpu_channel_options wanted;
        wanted.slots = 4;
        wanted.request_bytes = wanted.response_bytes = 1000;
        wanted.call_timeout = patience(60s);
        wanted.peer_timeout = peer_timeout;
        wanted.security.insecure = true;
        wanted.memory = GetParam() ? memory_kind::cuda(0) : memory_kind::host();
        const std::string there = "gpu" + server_.uri().substr(server_.uri().find(':'));
        auto made = gpu_channel::connect(context_, there, wanted);
        ASSERT_TRUE(made.ok()) << made.error().message;
        channel_ = std::make_unique<gpu_channel>(std::move(*made));
        for (device::call_ref& each : calls_) {
            ASSERT_EQ(device::begin(channel_->ref(), each), status::ok);
            ASSERT_EQ(device::submit(channel_->ref(), each, 100), status::ok);
        }
        ASSERT_TRUE(eventually(patience(5s), [&] { return server_.requests() == calls_.size(); }));
    }
    void expect_lost(std::chrono::steady_clock::time_point since) {
        for (device::call_ref& each : calls_) {
            EXPECT_EQ(await(channel_->ref(), each), status::peer_lost);
            EXPECT_EQ(device::release(channel_->ref(), each), status::ok);
        }
        EXPECT_LT(std::chrono::steady_clock::now() - since, patience(15s));
        device::call_ref next;
        EXPECT_EQ(device::begin(channel_->ref(), next), status::peer_lost);
        EXPECT_TRUE(eventually(patience(1s), [&] { return !channel_->connected(); }));
        EXPECT_EQ(channel_->failure().reason, status::peer_lost);
        channel_->close();
        const auto seen = channel_->statistics();
        EXPECT_EQ(seen.submitted, calls_.size());
        EXPECT_EQ(seen.ended_early, calls_.size());
        EXPECT_EQ(seen.quarantined, calls_.size());
    }

    std::shared_ptr<fake_accelerator> fake_ = std::make_shared<fake_accelerator>();
    context context_ = context::open({.log = log_level::off}).value();
    server_process server_{"rdma://" + own_loopback() + ":0", "hold", patience(5s)};
    std::unique_ptr<gpu_channel> channel_;
    std::array<device::call_ref, 4> calls_;
};

TEST_P(device_client_death, a_killed_server_ends_the_channel) {
    open(patience(5s));
    const auto since = std::chrono::steady_clock::now();
    server_.kill();
    expect_lost(since);
}

TEST_P(device_client_death, a_silent_server_ends_the_channel) {
    open(patience(1s));
    const auto since = std::chrono::steady_clock::now();
    server_.signal(SIGSTOP);
    expect_lost(since);
    server_.kill();
}

INSTANTIATE_TEST_SUITE_P(memory, device_client_death, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "fake" : "host"; });

}  // namespace
}  // namespace accel::tests
