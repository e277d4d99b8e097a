// SPDX-License-Identifier: Apache-2.0
// Kernels as clients: what tests/kernels/device does with threads in their place. At a service whose kernels run on
// the same GPU, and at a handler of the host's.
#include "gpu/client_kernels.hpp"
#include "gpu/gpu_resident_kernels.hpp"
#include "gpu/requests_wanted.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_channel.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

constexpr std::size_t largest = 4096;
constexpr int max_callers = 64;

/// Of a test.
constexpr std::uint64_t enough = 20'000;

class kernel_client : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        calls_ = open_stream();
        if (calls_ == nullptr) GTEST_SKIP() << "there is no GPU";
        service_stream_ = open_stream();
        tallies_ = allocate_tallies(max_callers);
        ASSERT_NE(tallies_, nullptr);
        ASSERT_TRUE(load_calling_kernels());
        listen();
    }
    void TearDown() override {
        if (calls_ == nullptr) return;
        for (gpu_channel& each : channels_) EXPECT_EQ(each.close(calls_, patience(10s)), status::ok);
        if (service_) {
            EXPECT_EQ(service_->stop(service_stream_, patience(10s)), status::ok);
        }
        EXPECT_STREQ(stream_failure(service_stream_), "");
        EXPECT_STREQ(stream_failure(calls_), "");
        close_stream(service_stream_);
        close_stream(calls_);
        for (std::thread& each : streams_) each.join();
        channels_.clear();  // after the service's kernels: freeing memory would wait for them
    }
    [[nodiscard]] static bool kernels_answer() { return GetParam(); }

    /// Everything is made and loaded before any kernel runs: CUDA may wait for it otherwise.
    void listen() {
        if (kernels_answer()) {
            gpu_service_options options = gpu_service::defaults();
            options.max_sessions = some_channels::most;
            options.max_slots = 16;
            options.max_request_bytes = options.max_response_bytes = largest;
            options.security.insecure = true;
            options.peer_timeout = patience(2s);
            auto made = gpu_service::listen(server_context_, "gpu://" + own_loopback() + ":0", options);
            if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
            ASSERT_TRUE(made.ok()) << made.error().message;
            service_ = std::make_unique<gpu_service>(std::move(*made));
            return;
        }
        server_options options;
        options.security.insecure = true;
        options.peer_timeout = patience(2s);
        options.poll = poll_mode::busy;
        const auto echo = [this](exchange request) {
            if (work_ == kernel_work::tokens) {
                auto kept = std::make_shared<exchange>(std::move(request));
                streams_.emplace_back([this, kept] { stream_tokens(*kept); });
                return;
            }
            const std::size_t length = std::min(request.request().size(), request.response().size());
            std::memcpy(request.response().data(), request.request().data(), length);
            (void)request.reply(length);
        };
        auto made = server::listen(server_context_, {"rdma://" + own_loopback() + ":0"}, echo, options);
        if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
        ASSERT_TRUE(made.ok()) << made.error().message;
        handler_ = std::make_unique<server>(std::move(*made));
    }
    /// As `kernel_work::tokens`. On a thread of its own: the one that calls handlers brings room.
    void stream_tokens(exchange& request) {
        const auto tokens = std::to_integer<unsigned>(request.request().front());
        const std::stop_token nobody_waits = request.stop_token();
        for (unsigned i = 0; i < tokens; ++i) {
            while (request.part().empty() && !nobody_waits.stop_requested()) std::this_thread::yield();
            const std::span<std::byte> room = request.part();
            if (room.empty()) break;
            std::memset(room.data(), static_cast<int>(i), i);
            if (request.send(i) != status::ok) break;
        }
        if (nobody_waits.stop_requested()) ++cancelled_;
        (void)request.reply(0);
    }
    void connect(int count, std::uint32_t slots) {
        const std::string there = handler_ ? handler_->endpoints().front() : service_->endpoint();
        gpu_channel_options wanted;
        wanted.slots = slots;
        wanted.request_bytes = wanted.response_bytes = largest;
        wanted.security.insecure = true;
        wanted.peer_timeout = patience(2s);
        wanted.call_timeout = patience(10s);
        wanted.kernels.sharing = sharing_;
        wanted.kernels.queues = queues_;
        for (int i = 0; i < count; ++i) {
            auto made = gpu_channel::connect(client_context_, "gpu" + there.substr(there.find(':')), wanted);
            if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
            ASSERT_TRUE(made.ok()) << made.error().message;
            channels_.push_back(std::move(*made));
            refs_.each[refs_.count++] = channels_.back().ref();
        }
        if (service_) {
            ASSERT_TRUE(launch_gpu_resident(service_->ref(), work_, 4, 64, nullptr, service_stream_));
        }
    }
    /// Stops the server while kernels call: they end with what no handler has seen.
    void expect_left(std::uint64_t callers) {
        EXPECT_TRUE(eventually(patience(10s), [&] {
            return std::ranges::all_of(channels_, [](const auto& each) { return each.statistics().completed > 0; });
        }));
        if (handler_) {
            EXPECT_EQ(handler_->drain(patience(10s)), status::ok);
        } else {
            EXPECT_EQ(service_->stop(service_stream_, patience(10s)), status::ok);
        }
        const client_tally all = sum(static_cast<int>(callers));
        EXPECT_GT(all.right, 0U);
        EXPECT_EQ(all.wrong, 0U);
        EXPECT_EQ(all.failed, callers);
        EXPECT_EQ(static_cast<status>(all.last_failure), status::closed);
        for (gpu_channel& each : channels_) {
            // A refused call may be back before the control plane tells that the server drains.
            EXPECT_TRUE(eventually(patience(10s), [&] { return !each.connected(); }));
            EXPECT_EQ(each.close(calls_, patience(10s)), status::ok);
            EXPECT_EQ(each.failure().reason, status::closed);
            EXPECT_EQ(each.statistics().submitted, each.statistics().completed + each.statistics().ended_early);
            EXPECT_TRUE(!handler_ || each.statistics().ended_early == 0) << "those in flight were answered";
        }
    }
    /// Waits for the calling kernels.
    [[nodiscard]] client_tally sum(int count) {
        EXPECT_STREQ(stream_failure(calls_), "");
        client_tally out;
        for (int i = 0; i < count; ++i) {
            out.right += tallies_[i].right;
            out.wrong += tallies_[i].wrong;
            out.failed += tallies_[i].failed;
            out.total_ns += tallies_[i].total_ns;
            if (tallies_[i].last_failure != 0) out.last_failure = tallies_[i].last_failure;
        }
        return out;
    }

    context server_context_ = context::open().value();
    context client_context_ = context::open().value();
    std::unique_ptr<gpu_service> service_;
    std::unique_ptr<server> handler_;
    std::vector<gpu_channel> channels_;
    some_channels refs_;
    service_sharing sharing_ = service_sharing::shared;  ///< of the channels
    queue_location queues_ = queue_location::automatic;
    kernel_work work_ = kernel_work::echo;
    std::vector<std::thread> streams_;  ///< of the handler
    std::atomic<std::uint32_t> cancelled_{0};
    client_tally* tallies_ = nullptr;
    CUstream_st* calls_ = nullptr;
    CUstream_st* service_stream_ = nullptr;
};

TEST_P(kernel_client, blocks_call_through_several_channels) {
    connect(some_channels::most, 4);
    if (IsSkipped()) return;
    constexpr int blocks = 8;
    const std::uint64_t each = requests_wanted(enough) / blocks;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(launch_calling_blocks(refs_, {each, largest, true}, blocks, 64, tallies_, calls_));
    const client_tally all = sum(blocks);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(all.right, each * blocks);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 0U) << to_string(static_cast<status>(all.last_failure));
    std::cout << static_cast<double>(all.right) / took.count() << " calls/s of 0 to 4096 bytes by " << blocks
              << " blocks\n";
}

TEST_P(kernel_client, threads_of_a_warp_share_a_channel) {
    connect(1, 16);
    if (IsSkipped()) return;
    constexpr int threads = 64;  // more than slots
    const std::uint64_t each = requests_wanted(enough) / 4 / threads;
    ASSERT_TRUE(launch_calling_threads(refs_, {each, 200, true}, 1, threads, tallies_, calls_));
    const client_tally all = sum(threads);
    EXPECT_EQ(all.right, each * threads);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 0U) << to_string(static_cast<status>(all.last_failure));
}

TEST_P(kernel_client, consecutive_calls_are_answered_and_timed) {
    connect(1, 4);
    if (IsSkipped()) return;
    constexpr std::uint64_t calls = 10'000;
    ASSERT_TRUE(launch_calling_blocks(refs_, {500, 64, false}, 1, 64, tallies_, calls_));
    ASSERT_TRUE(launch_calling_blocks(refs_, {calls, 64, false}, 1, 64, tallies_ + 1, calls_));
    EXPECT_EQ(sum(2).right, calls + 500);
    std::cout << "64 bytes there and back: " << static_cast<double>(tallies_[1].total_ns) / calls / 1000
              << " us, at least " << static_cast<double>(tallies_[1].min_ns) / 1000 << '\n';
    const auto seen = channels_[0].statistics();
    EXPECT_LE(seen.completed, calls + 500);
    EXPECT_EQ(channels_[0].close(calls_, patience(10s)), status::ok);
    EXPECT_EQ(channels_[0].statistics().completed, calls + 500);
}

/// Each block has a channel of its own: no lock, no completion queue, and queues in the GPU's memory if it can be.
TEST_P(kernel_client, blocks_call_through_channels_that_they_own) {
    sharing_ = service_sharing::exclusive;
    connect(some_channels::most, 4);
    if (IsSkipped()) return;
    constexpr int blocks = some_channels::most;
    EXPECT_EQ(channels_[0].sharing(), service_sharing::exclusive);
    std::cout << channels_[0].engine_reason() << '\n';
    const std::uint64_t each = requests_wanted(enough) / blocks;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(launch_owning_blocks(refs_, {each, largest, true}, 64, tallies_, calls_));
    const client_tally all = sum(blocks);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(all.right, each * blocks);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 0U) << to_string(static_cast<status>(all.last_failure));
    std::cout << static_cast<double>(all.right) / took.count() << " calls/s of 0 to 4096 bytes by " << blocks
              << " owners\n";
}

/// Beside `consecutive_calls_are_answered_and_timed`, and with queues on the host as well.
TEST_P(kernel_client, consecutive_calls_of_an_owner_are_answered_and_timed) {
    sharing_ = service_sharing::exclusive;
    constexpr std::uint64_t calls = 10'000;
    for (const queue_location queues : {queue_location::host, queue_location::automatic}) {
        // Nothing can be made once a service's kernels run.
        if (service_ && queues == queue_location::host) continue;
        queues_ = queues;
        refs_.count = 0;
        connect(1, 4);
        if (IsSkipped()) return;
        tallies_[0] = tallies_[1] = {};
        ASSERT_TRUE(launch_owning_blocks(refs_, {500, 64, false}, 64, tallies_, calls_));
        ASSERT_TRUE(launch_owning_blocks(refs_, {calls, 64, false}, 64, tallies_ + 1, calls_));
        EXPECT_EQ(sum(2).right, calls + 500) << "the second kernel goes on where the first ended";
        std::cout << "64 bytes there and back, " << channels_.back().engine_reason() << ": "
                  << static_cast<double>(tallies_[1].total_ns) / calls / 1000 << " us, at least "
                  << static_cast<double>(tallies_[1].min_ns) / 1000 << '\n';
    }
}

TEST_P(kernel_client, a_stop_ends_an_owners_calls_within_a_bound) {
    sharing_ = service_sharing::exclusive;
    connect(2, 4);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_owning_blocks(refs_, {0, 256, true}, 64, tallies_, calls_));
    std::this_thread::sleep_for(500ms);
    const auto begin = std::chrono::steady_clock::now();
    for (gpu_channel& each : channels_) each.request_stop();
    const client_tally all = sum(2);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 1000.0);
    EXPECT_GT(all.right, 0U);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 2U);
    EXPECT_EQ(static_cast<status>(all.last_failure), status::closed);
}

TEST_P(kernel_client, a_stop_ends_calls_within_a_bound) {
    connect(2, 4);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_calling_blocks(refs_, {0, 256, true}, 4, 64, tallies_, calls_));
    std::this_thread::sleep_for(500ms);
    const auto begin = std::chrono::steady_clock::now();
    for (gpu_channel& each : channels_) each.request_stop();
    const client_tally all = sum(4);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 1000.0);
    EXPECT_GT(all.right, 0U);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 4U);
    EXPECT_EQ(static_cast<status>(all.last_failure), status::closed);
    std::cout << "stopped in " << took.count() << " ms, after " << all.right << " calls\n";
}

TEST_P(kernel_client, a_server_that_stops_ends_calls) {
    connect(2, 4);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_calling_blocks(refs_, {0, 256, true}, 4, 64, tallies_, calls_));
    std::this_thread::sleep_for(200ms);
    if (handler_) {
        handler_->stop();
    } else {
        EXPECT_EQ(service_->stop(service_stream_, patience(10s)), status::ok);
    }
    const client_tally all = sum(4);
    EXPECT_GT(all.right, 0U);
    EXPECT_EQ(all.wrong, 0U);
    EXPECT_EQ(all.failed, 4U);
    for (const gpu_channel& each : channels_) EXPECT_TRUE(eventually(patience(10s), [&] { return !each.connected(); }));
}

TEST_P(kernel_client, kernels_leave_a_draining_server) {
    connect(2, 4);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_calling_blocks(refs_, {0, 256, true}, 4, 64, tallies_, calls_));
    expect_left(4);
}

TEST_P(kernel_client, owners_leave_a_draining_server) {
    sharing_ = service_sharing::exclusive;
    connect(2, 4);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_owning_blocks(refs_, {0, 256, true}, 64, tallies_, calls_));
    expect_left(2);
}

TEST_P(kernel_client, a_draining_server_sends_the_parts_of_calls_in_flight) {
    sharing_ = service_sharing::exclusive;
    work_ = kernel_work::tokens;
    connect(2, 8);
    if (IsSkipped()) return;
    ASSERT_TRUE(launch_streaming_blocks(refs_, {1'000'000, 200, 4, 0}, 64, tallies_, calls_));
    expect_left(2);
}

TEST_P(kernel_client, streams_are_read_in_parts) {
    for (const service_sharing sharing : {service_sharing::shared, service_sharing::exclusive}) {
        // Nothing can be made once a service's kernels run.
        if (service_ && sharing == service_sharing::shared) continue;
        sharing_ = sharing;
        work_ = kernel_work::tokens;
        refs_.count = 0;
        connect(2, 8);
        if (IsSkipped()) return;
        tallies_[0] = tallies_[1] = {};
        constexpr std::uint32_t calls = 20;
        ASSERT_TRUE(launch_streaming_blocks(refs_, {calls, 200, 4, 0}, 64, tallies_, calls_));
        const client_tally all = sum(2);
        EXPECT_EQ(all.right, calls * 2);
        EXPECT_EQ(all.wrong, 0U);
        EXPECT_EQ(all.failed, 0U) << to_string(static_cast<status>(all.last_failure));
        std::cout << static_cast<double>(all.total_ns) / (calls * 2) / 200 / 1000 << " us a part\n";
    }
}

TEST_P(kernel_client, a_cancelled_stream_ends_at_the_server) {
    work_ = kernel_work::tokens;
    connect(1, 8);
    if (IsSkipped()) return;
    constexpr std::uint32_t calls = 5;
    ASSERT_TRUE(launch_streaming_blocks(refs_, {calls, 250, 2, 3}, 64, tallies_, calls_));
    const client_tally all = sum(1);
    EXPECT_EQ(all.right, calls) << "room comes back, for the server has heard";
    EXPECT_EQ(all.wrong + all.failed, 0U) << to_string(static_cast<status>(all.last_failure));
    EXPECT_TRUE(!handler_ || eventually(patience(5s), [&] { return cancelled_ == calls; })) << cancelled_;
}

INSTANTIATE_TEST_SUITE_P(server, kernel_client, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "kernels" : "handler"; });

}  // namespace
}  // namespace accel::tests
