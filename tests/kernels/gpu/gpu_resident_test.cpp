// SPDX-License-Identifier: Apache-2.0
// GPU-resident services with real kernels: what tests/kernels/device does with threads in their place. By both
// engines: the GPU drives the device's queues, or a thread of the host posts for it. And with one owner for each
// session, a block or a warp.
#include "gpu/gpu_resident_rig.hpp"
#include "gpu/requests_wanted.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class gpu_resident : public gpu_resident_service, public ::testing::WithParamInterface<way> {
    [[nodiscard]] way served() const override { return GetParam(); }
};

TEST_P(gpu_resident, echoes_every_size) {
    serve(kernel_work::echo, 1, 64);
    if (IsSkipped()) return;
    channel client = connect();
    for (const std::size_t size : {0U, 1U, 7U, 64U, 65U, 255U, 1000U, 4095U, 4096U}) {
        std::vector<std::byte> request(size);
        fill(request, size);
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << size << ": " << answer.error().message;
        EXPECT_EQ(answer->response.size(), size);
        EXPECT_TRUE(matches(answer->response, size)) << size;
    }
}

TEST_P(gpu_resident, failures_reach_the_client) {
    serve(kernel_work::fail, 1, 32);
    if (IsSkipped()) return;
    channel client = connect();
    auto answer = client.call({});
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, status::application_error);
}

TEST_P(gpu_resident, slots_may_lie_on_the_host) {
    options_.kernels.host_slots = true;
    serve(kernel_work::echo, 2, 64);
    if (IsSkipped()) return;
    channel client = connect();
    EXPECT_EQ(run_calls(client, 2000, 3, 4096).right, 2000U);
}

TEST_P(gpu_resident, consecutive_calls_are_answered_and_timed) {
    kernel_times* const times = allocate_times(1);
    serve(kernel_work::echo, 1, 64, times);
    if (IsSkipped()) return;
    channel client = connect();
    constexpr int calls = 5'000;
    const auto begin = std::chrono::steady_clock::now();
    const tally got = run_calls(client, 1000, 1, 64);
    EXPECT_EQ(got.right, 1000U);
    std::array<std::byte, 64> request{};
    for (int i = 0; i < calls; ++i) ASSERT_TRUE(client.call(request).ok());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::cout << "64 bytes there and back: " << took.count() / (calls + 1000)
              << " us; on the GPU, from arrival to the response posted: "
              << static_cast<double>(times->total_ns) / static_cast<double>(times->served) / 1000 << " us, at least "
              << static_cast<double>(times->min_ns) / 1000 << ", at most " << static_cast<double>(times->max_ns) / 1000
              << "; " << cpu_used() << '\n';
}

class gpu_resident_sessions : public gpu_resident_service, public ::testing::WithParamInterface<std::tuple<way, int>> {
    [[nodiscard]] way served() const override { return std::get<0>(GetParam()); }
};

TEST_P(gpu_resident_sessions, many_sessions_get_correct_answers) {
    serve(kernel_work::echo, 8, 64);
    if (IsSkipped()) return;
    const int sessions = std::get<1>(GetParam());
    const std::uint64_t each = requests_wanted(30'000) / static_cast<std::uint64_t>(sessions);
    std::atomic<std::uint64_t> right{0};
    std::atomic<std::uint64_t> others{0};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    constexpr int max_threads = 8;
    const int count = std::min(sessions, max_threads);
    for (int t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
            std::vector<channel> clients;
            for (int i = t; i < sessions; i += count) clients.push_back(connect(16));
            for (std::size_t i = 0; i < clients.size(); ++i) {
                const tally got = run_calls(clients[i], each, i * 77 + static_cast<std::uint64_t>(t), 512);
                right += got.right;
                others += got.wrong + got.failed;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(right.load(), each * static_cast<std::uint64_t>(sessions));
    EXPECT_EQ(others.load(), 0U);
    std::cout << sessions << " sessions: " << static_cast<double>(right.load()) / took.count() << " requests/s, "
              << right.load() << " right; " << cpu_used() << " in " << took.count() << " s\n";
}

INSTANTIATE_TEST_SUITE_P(by, gpu_resident, every_way(), [](const auto& row) { return name_of(row.param); });
INSTANTIATE_TEST_SUITE_P(by, gpu_resident_sessions, ::testing::Combine(every_way(), ::testing::Values(1, 4, 16, 64)),
                         [](const auto& row) {
                             return name_of(std::get<0>(row.param)) + "_" + std::to_string(std::get<1>(row.param));
                         });

/// Takes a response of `parts` parts.
void expect_tokens(channel& client, std::uint32_t parts, std::uint32_t room) {
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    call->request[0] = static_cast<std::byte>(parts);
    status sent = status::again;
    ASSERT_TRUE(eventually(patience(10s), [&] {  // room of the call before comes back behind its answer
        std::array<completion, 1> none;
        EXPECT_EQ(client.poll(none), 0U);
        sent = client.submit(call->id, 1, {.parts = room});
        return sent != status::again;
    }));
    ASSERT_EQ(sent, status::ok);
    for (std::uint32_t i = 0; i <= parts; ++i) {
        std::array<completion, 1> one;
        ASSERT_EQ(client.wait(one, patience(10s)), 1U) << i;
        EXPECT_EQ(one[0].status, status::ok) << to_string(one[0].status);
        ASSERT_EQ(one[0].more, i < parts) << i;
        ASSERT_EQ(one[0].response.size(), i < parts ? i : 0);
        for (const std::byte each : one[0].response) ASSERT_EQ(each, static_cast<std::byte>(i));
    }
}

TEST_P(gpu_resident, streams_tokens) {
    serve(kernel_work::tokens, 2, GetParam() == way::exclusive ? 32 : 64);
    if (IsSkipped()) return;
    std::vector<std::thread> clients;
    for (int i = 0; i < 2; ++i) {
        clients.emplace_back([&] {
            channel client = connect();
            const auto begin = std::chrono::steady_clock::now();
            constexpr std::uint32_t rounds = 20;
            for (std::uint32_t round = 0; round < rounds; ++round) expect_tokens(client, 200, round % 7 + 1);
            const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
            std::cout << took.count() / (rounds * 200) << " us a part\n";
        });
    }
    for (std::thread& each : clients) each.join();
}

TEST_P(gpu_resident, cancelled_streams_end) {
    serve(kernel_work::tokens, 1, 64);
    if (IsSkipped()) return;
    channel client = connect();
    for (int round = 0; round < 20; ++round) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        call->request[0] = std::byte{200};
        ASSERT_EQ(client.submit(call->id, 1, {.parts = 1}), status::ok);
        std::array<completion, 2> some;
        ASSERT_EQ(client.wait(std::span{some}.first(1), patience(10s)), 1U);
        ASSERT_TRUE(some[0].more);
        ASSERT_EQ(client.cancel(call->id), status::ok);
        ASSERT_EQ(client.wait(std::span{some}.last(1), patience(10s)), 1U);
        EXPECT_EQ(some[1].status, status::cancelled);
    }
    expect_tokens(client, 100, 3);
}

TEST_P(gpu_resident, a_stop_disconnects_clients_and_answers_requests_in_flight) {
    serve(kernel_work::tokens, 1, 64);
    if (IsSkipped()) return;
    channel client = connect();
    const auto call = client.begin();
    ASSERT_EQ(call.code(), status::ok);
    constexpr std::uint32_t parts = 100;
    call->request[0] = std::byte{parts};
    ASSERT_EQ(client.submit(call->id, 1, {.parts = 1}), status::ok);
    std::array<completion, 1> one;
    for (std::uint32_t i = 0; i <= parts; ++i) {
        ASSERT_EQ(client.wait(one, patience(10s)), 1U) << i;
        EXPECT_EQ(one[0].status, status::ok) << to_string(one[0].status);
        ASSERT_EQ(one[0].more, i < parts) << i;
        if (i == 0) {
            service_->request_stop();
            EXPECT_TRUE(eventually(patience(5s), [&] { return client.poll({}) == 0 && !client.connected(); }));
            const auto next = client.begin();
            EXPECT_EQ(next.code(), status::closed);
        }
        one[0].release();
    }
    EXPECT_EQ(service_->stop(stream_, patience(5s)), status::ok);
}

TEST_P(gpu_resident, sessions_come_and_go_while_the_service_runs) {
    options_.max_sessions = 4;
    serve(kernel_work::echo, 4, 64);
    if (IsSkipped()) return;
    channel stays = connect();
    for (int i = 0; i < 40; ++i) {
        std::unique_ptr<channel> comes;
        ASSERT_TRUE(eventually(patience(5s), [&] {
            try {
                comes = std::make_unique<channel>(connect());
            } catch (const std::runtime_error&) {
                return false;
            }
            return true;
        })) << i;
        EXPECT_EQ(run_calls(*comes, 50, 1, 4096).right, 50U);
        EXPECT_EQ(run_calls(stays, 20, 2, 4096).right, 20U);
    }
}

TEST_P(gpu_resident, stops_within_a_bound_while_clients_call) {
    serve(kernel_work::echo, 4, 64);
    if (IsSkipped()) return;
    std::atomic<std::uint64_t> right{0};
    std::vector<std::thread> clients;
    for (int i = 0; i < 3; ++i) {
        clients.emplace_back([&] {
            channel client = connect();
            for (;;) {
                const tally got = run_calls(client, 100, 5, 256);
                right += got.right;
                if (got.right < 100) return;
            }
        });
    }
    std::this_thread::sleep_for(500ms);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(service_->stop(stream_, patience(5s)), status::ok);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    for (std::thread& each : clients) each.join();
    std::cout << "stopped in " << took.count() << " ms, after " << right.load() << " requests\n";
    EXPECT_GT(right.load(), 0U);
    EXPECT_LT(took.count(), 3000.0);
}

}  // namespace
}  // namespace accel::tests
