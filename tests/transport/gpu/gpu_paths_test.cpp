// SPDX-License-Identifier: Apache-2.0
// From GPU to GPU over every transport, with a real one at either end: the client's memory is on the first,
// the server's on the last, which may be the same.
#include "conformance/payload.hpp"
#include "gpu/gpu_bytes.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

class gpu_paths : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const int count = gpu_count();
        if (count == 0) GTEST_SKIP() << "there is no GPU";
        last_ = memory_kind::cuda(static_cast<std::int16_t>(count - 1));
        for (const scheme_report& each : ctx_.schemes())
            if (each.scheme == GetParam() && !each.usable) GTEST_SKIP() << each.reason;
    }
    void serve(handler service) {
        server_options options;
        options.memory = last_;
        options.max_request_bytes = options.max_response_bytes = std::size_t{512} << 20;
        options.max_memory_bytes = std::size_t{1} << 40;
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        const bool named = GetParam() == "local" || GetParam() == "shm";
        const std::string uri = GetParam() + (named ? "://gpu-paths" : "://127.0.0.1:0");
        auto made = server::listen(ctx_, {uri}, std::move(service), options);
        ASSERT_TRUE(made) << made.error().message;
        server_.emplace(std::move(*made));
    }
    [[nodiscard]] channel connect(channel_options options) {
        options.security.insecure = true;
        options.peer_timeout = patience(5s);
        options.call_timeout = patience(20s);
        return channel::connect(ctx_, server_->endpoints().at(0), options).value();
    }
    static completion next(channel& from) {
        std::array<completion, 1> one;
        EXPECT_EQ(from.wait(one, patience(20s)), 1U);
        return std::move(one[0]);
    }

    context ctx_ = context::open({.log = log_level::off}).value();
    memory_kind last_;
    std::optional<server> server_;
};

void echo(exchange one) {
    const std::size_t length = std::min(one.request().size(), one.response().size());
    copy_bytes(one.stream(), one.response().data(), one.request().data(), length);
    (void)one.reply(length);
}

TEST_P(gpu_paths, payloads_travel_from_gpu_to_gpu_and_back) {
    constexpr std::size_t most = std::size_t{5} << 20;
    serve(echo);
    region memory = ctx_.allocate(2 * most, memory_kind::cuda(0)).value();
    channel_options options;
    options.request_bytes = options.response_bytes = most;
    channel client = connect(options);
    std::uint64_t seed = 0;
    for (const std::size_t length : {std::size_t{1}, std::size_t{4096}, std::size_t{1'000'003}, most}) {
        for (int round = 0; round < 4; ++round) {
            bytes there(length);
            fill(there, ++seed);
            copy_bytes(nullptr, memory.data(), there.data(), length);
            const auto call = client.begin();
            ASSERT_EQ(call.code(), status::ok);
            submit_options into;
            into.response_into = memory.part(most, length).value();
            ASSERT_EQ(client.submit(call->id, memory.part(0, length).value(), into), status::ok);
            const completion got = next(client);
            ASSERT_EQ(got.status, status::ok) << to_string(got.status);
            ASSERT_EQ(got.response.data(), memory.data() + most);
            bytes back(length);
            copy_bytes(nullptr, back.data(), memory.data() + most, length);
            EXPECT_TRUE(matches(back, seed)) << length << " bytes";
            const bool reached = GetParam() == "gdr" || (GetParam() == "shm" && last_ == memory_kind::cuda(0));
            EXPECT_EQ(got.timeline.copy == 0ns, reached);
        }
    }
    std::cout << GetParam() << ": client's memory on cuda:0, server's on cuda:" << last_.ordinal << '\n';
}

/// Over local, where the copies are all that takes time.
class gpu_copy_order : public gpu_paths {};

/// Copies go in pieces, so that a small one goes between those of large ones.
TEST_P(gpu_copy_order, a_small_request_of_high_priority_does_not_wait_for_large_copies) {
    constexpr std::size_t large_bytes = std::size_t{256} << 20;
    serve([](exchange one) { (void)one.reply(std::size_t{1}); });
    channel_options large;
    large.slots = 3;
    large.request_bytes = large_bytes;
    large.response_bytes = 64;
    channel_options small;
    small.slots = 1;
    small.request_bytes = 4096;
    small.response_bytes = 64;
    small.priority = stream_priority::high;
    channel quick = connect(small);
    const auto quick_call = [&quick] {
        const auto call = quick.begin();
        EXPECT_EQ(call.code(), status::ok);
        EXPECT_EQ(quick.submit(call->id, 4096), status::ok);
        completion got = next(quick);
        EXPECT_EQ(got.status, status::ok);
        return got.timeline.total;
    };
    const auto median = [&] {
        std::vector<std::chrono::nanoseconds> all;
        for (int i = 0; i < 200; ++i) all.push_back(quick_call());
        std::nth_element(all.begin(), all.begin() + 100, all.end());
        return all[100];
    };
    (void)median();
    const auto alone = median();

    std::atomic<bool> stop{false};
    std::atomic<int> copies{0};
    std::chrono::nanoseconds one_copy{};
    std::thread busy([&] {
        channel slow = connect(large);
        for (int i = 0; i < 3; ++i) {
            const auto call = slow.begin();
            EXPECT_EQ(call.code(), status::ok);
            EXPECT_EQ(slow.submit(call->id, large_bytes), status::ok);
        }
        while (!stop) {
            completion got = next(slow);
            EXPECT_EQ(got.status, status::ok);
            got.release();
            if (++copies == 6) one_copy = got.timeline.copy;
            const auto call = slow.begin();
            EXPECT_EQ(call.code(), status::ok);
            EXPECT_EQ(slow.submit(call->id, large_bytes), status::ok);
        }
    });
    while (copies < 6) std::this_thread::sleep_for(1ms);
    const auto beside = median();
    stop = true;
    busy.join();
    std::cout << "4 KiB of high priority: " << alone.count() / 1000 << " us alone, " << beside.count() / 1000
              << " us beside copies of 256 MiB, three at a time, of " << one_copy.count() / 1000 << " us\n";
    EXPECT_LT(beside, one_copy / 4);
}

INSTANTIATE_TEST_SUITE_P(schemes, gpu_copy_order, ::testing::Values("local"),
                         [](const auto& row) { return row.param; });
INSTANTIATE_TEST_SUITE_P(schemes, gpu_paths, ::testing::Values("local", "shm", "tcp", "zmq", "rdma", "gdr"),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace accel::tests
