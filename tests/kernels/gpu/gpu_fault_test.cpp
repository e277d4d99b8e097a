// SPDX-License-Identifier: Apache-2.0
// Kernels that fault while they serve or call: clients hear of it within a second. What a fault leaves of a process
// cannot use the GPU any more, so that each test needs a process of its own, as ctest gives it.
#include "gpu/client_kernels.hpp"
#include "gpu/fault_kernels.hpp"
#include "gpu/gpu_resident_kernels.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_channel.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

bool gpu_is_lost = false;

/// From the request that makes a kernel fault to the client's completion.
constexpr auto soon = std::chrono::seconds{1};

class gpu_fault : public ::testing::Test {
  protected:
    void SetUp() override {
        if (gpu_is_lost) GTEST_SKIP() << "another test of this process has lost the GPU; ctest gives each a process";
        stream_ = open_stream();
        other_stream_ = open_stream();
        if (stream_ == nullptr) GTEST_SKIP() << "there is no GPU";
        ASSERT_TRUE(load_faulting_kernels());
    }
    void listen(gpu_engine engine, service_sharing sharing = service_sharing::shared) {
        gpu_service_options options = gpu_service::defaults();
        options.max_sessions = 4;
        options.max_request_bytes = options.max_response_bytes = 4096;
        options.security.insecure = true;
        options.peer_timeout = patience(30s);  // nothing here is noticed by silence
        options.kernels.engine = engine;
        options.kernels.sharing = sharing;
        auto made = gpu_service::listen(context_, "gpu://" + own_loopback() + ":0", options);
        if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
        ASSERT_TRUE(made.ok()) << made.error().message;
        service_.emplace(std::move(*made));
    }
    [[nodiscard]] result<channel> try_connect() {
        channel_options wanted;
        wanted.slots = 2;
        wanted.request_bytes = wanted.response_bytes = 256;
        wanted.security.insecure = true;
        wanted.reconnect = false;
        wanted.call_timeout = patience(30s);
        wanted.peer_timeout = patience(30s);
        return channel::connect(client_context_, service_->endpoint(), wanted);
    }
    [[nodiscard]] channel connect() {
        auto made = try_connect();
        if (!made) throw std::runtime_error(made.error().message);
        return std::move(*made);
    }
    /// `waiting` has a call in flight, or none.
    void expect_loss(channel& waiting, channel& idle, std::chrono::steady_clock::time_point since) {
        gpu_is_lost = true;
        std::array<completion, 1> done;
        ASSERT_EQ(waiting.wait(done, patience(20s)), 1U);
        const auto took = std::chrono::steady_clock::now() - since;
        std::cout << "a call in flight ended " << std::chrono::duration_cast<std::chrono::milliseconds>(took).count()
                  << " ms after the request\n";
        EXPECT_EQ(done[0].status, status::device_lost) << to_string(done[0].status);
        EXPECT_LT(took, patience(soon));
        expect_end(idle);
        EXPECT_EQ(service_->failure(), status::device_lost);
        const auto refused = try_connect();
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, status::device_lost) << refused.error().message;
    }
    static void expect_end(channel& idle) {
        std::array<completion, 1> none;
        status seen = status::ok;
        EXPECT_TRUE(eventually(patience(soon), [&] {
            (void)idle.poll(none);
            const auto call = idle.begin();
            seen = call.code();
            if (call) (void)idle.release(call->id);
            return seen == status::device_lost;
        })) << to_string(seen);
    }
    void expect_stop() {
        EXPECT_EQ(service_->stop(stream_, patience(10s)), status::device_lost);
        EXPECT_STRNE(stream_failure(stream_), "");
        EXPECT_EQ(service_->statistics().sessions, 0U);
    }
    static std::chrono::steady_clock::time_point submit(channel& through, std::size_t bytes) {
        const auto call = through.begin();
        EXPECT_EQ(call.code(), status::ok);
        const auto now = std::chrono::steady_clock::now();
        EXPECT_EQ(through.submit(call->id, bytes), status::ok);
        return now;
    }

    context context_ = context::open().value();
    context client_context_ = context::open().value();
    std::optional<gpu_service> service_;
    CUstream_st* stream_ = nullptr;
    CUstream_st* other_stream_ = nullptr;
};

struct fault_case {
    const char* name;
    gpu_engine engine;
    service_sharing sharing;
    kernel_fault what;
    friend std::ostream& operator<<(std::ostream& out, const fault_case& which) { return out << which.name; }
};

class service_fault : public gpu_fault, public ::testing::WithParamInterface<fault_case> {};

TEST_P(service_fault, ends_calls_and_sessions_with_device_lost) {
    const fault_case& which = GetParam();
    listen(which.engine, which.sharing);
    if (IsSkipped()) return;
    const bool exclusive = which.sharing == service_sharing::exclusive;
    ASSERT_TRUE((exclusive ? launch_faulting_owner : launch_faulting_service)(service_->ref(), which.what, stream_));
    channel waiting = connect();
    channel idle = connect();
    constexpr std::array<std::byte, 100> request{std::byte{7}};
    ASSERT_TRUE(waiting.call(request).ok());
    ASSERT_EQ(service_->failure(), status::ok);
    expect_loss(waiting, idle, submit(waiting, 1));
    expect_stop();
}

INSTANTIATE_TEST_SUITE_P(
    by, service_fault,
    ::testing::Values(
        fault_case{"direct_wild_store", gpu_engine::direct, service_sharing::shared, kernel_fault::wild_store},
        fault_case{"direct_trap", gpu_engine::direct, service_sharing::shared, kernel_fault::trap},
        fault_case{"proxy_wild_store", gpu_engine::proxy, service_sharing::shared, kernel_fault::wild_store},
        fault_case{"exclusive_trap", gpu_engine::direct, service_sharing::exclusive, kernel_fault::trap}),
    [](const auto& row) { return row.param.name; });

TEST_F(gpu_fault, a_faulty_recorded_node_ends_calls_with_device_lost) {
    listen(gpu_engine::automatic);
    if (IsSkipped()) return;
    auto graph = gpu_graph::start(*service_, {}, [](CUstream_st* stream, const device::graph_iteration& iteration) {
        if (record_fault(stream, iteration, kernel_fault::wild_store)) return result<void>{};
        return result<void>{error{status::system_error, 0, "the kernel cannot be recorded"}};
    });
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    channel waiting = connect();
    channel idle = connect();
    expect_loss(waiting, idle, submit(waiting, 1));
    EXPECT_EQ(graph->stop(patience(10s)), status::device_lost);
}

TEST_F(gpu_fault, a_faulty_unrelated_kernel_ends_the_sessions) {
    listen(gpu_engine::automatic);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_gpu_resident(service_->ref(), kernel_work::echo, 1, 64, nullptr, stream_));
    channel idle = connect();
    gpu_is_lost = true;
    ASSERT_TRUE(launch_fault(kernel_fault::wild_store, other_stream_));
    expect_end(idle);
    EXPECT_EQ(service_->failure(), status::device_lost);
    expect_stop();
}

TEST_F(gpu_fault, ends_a_channel_of_kernels_and_tells_its_server) {
    ASSERT_TRUE(load_calling_kernels());
    server_options options;
    options.security.insecure = true;
    options.peer_timeout = patience(30s);
    const auto echo = [](exchange request) {
        const std::size_t length = std::min(request.request().size(), request.response().size());
        std::memcpy(request.response().data(), request.request().data(), length);
        (void)request.reply(length);
    };
    auto serving = server::listen(context_, {"rdma://" + own_loopback() + ":0"}, echo, options);
    if (!serving && serving.error().code == status::unsupported) GTEST_SKIP() << serving.error().message;
    ASSERT_TRUE(serving.ok()) << serving.error().message;
    gpu_channel_options wanted;
    wanted.slots = 4;
    wanted.request_bytes = wanted.response_bytes = 256;
    wanted.security.insecure = true;
    wanted.peer_timeout = patience(30s);
    const std::string there = serving->endpoints().front();
    auto calling = gpu_channel::connect(client_context_, "gpu" + there.substr(there.find(':')), wanted);
    if (!calling && calling.error().code == status::unsupported) GTEST_SKIP() << calling.error().message;
    ASSERT_TRUE(calling.ok()) << calling.error().message;
    client_tally* const tallies = allocate_tallies(1);
    some_channels channels;
    channels.each[0] = calling->ref();
    channels.count = 1;
    ASSERT_TRUE(launch_calling_blocks(channels, {0, 100, false}, 1, 32, tallies, stream_));
    ASSERT_TRUE(eventually(patience(10s), [&] { return serving->statistics().replies > 10; }));
    gpu_is_lost = true;
    ASSERT_TRUE(launch_fault(kernel_fault::trap, other_stream_));
    EXPECT_TRUE(eventually(patience(soon), [&] { return !calling->connected(); }));
    EXPECT_EQ(calling->failure().reason, status::device_lost);
    EXPECT_TRUE(eventually(patience(soon), [&] { return serving->statistics().sessions == 0; }));
    EXPECT_EQ(calling->close(stream_, patience(10s)), status::device_lost);
}

}  // namespace
}  // namespace accel::tests
