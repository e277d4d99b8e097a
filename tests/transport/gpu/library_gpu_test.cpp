// SPDX-License-Identifier: Apache-2.0
// The library on a real GPU: memory of the wrong kind, memory that is not there, a kernel that faults.
#include "gpu/faulty_kernel.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

class library_gpu : public ::testing::Test {
  protected:
    void SetUp() override {
        auto small = ctx_.allocate(64, memory_kind::cuda(0));
        if (!small) GTEST_SKIP() << small.error().message;
    }
    [[nodiscard]] server serve(handler service, std::size_t max_bytes = std::size_t{64} << 20) {
        server_options options;
        options.memory = memory_kind::cuda(0);
        options.max_request_bytes = options.max_response_bytes = max_bytes;
        options.max_memory_bytes = std::size_t{1} << 50;
        options.security.insecure = true;
        return server::listen(ctx_, {"tcp://127.0.0.1:0"}, std::move(service), options).value();
    }
    [[nodiscard]] result<channel> connect(const server& to, std::size_t bytes, std::uint32_t slots = 8) {
        channel_options options;
        options.request_bytes = options.response_bytes = bytes;
        options.slots = slots;
        options.security.insecure = true;
        return channel::connect(ctx_, to.endpoints().at(0), options);
    }
    static void send(channel& through) {
        const auto call = through.begin();
        ASSERT_EQ(call.code(), status::ok);
        ASSERT_EQ(through.submit(call->id, 100), status::ok);
    }
    static completion next(channel& from) {
        std::array<completion, 1> one;
        EXPECT_EQ(from.wait(one, patience(10s)), 1U);
        return std::move(one[0]);
    }

    context ctx_ = context::open({.log = log_level::off}).value();
};

TEST_F(library_gpu, memory_is_registered_only_as_the_kind_it_has) {
    auto on_gpu = ctx_.allocate(100'000, memory_kind::cuda(0)).value();
    EXPECT_EQ(on_gpu.kind(), memory_kind::cuda(0));
    std::vector<std::byte> on_host(1000);
    EXPECT_EQ(ctx_.register_memory(on_gpu.data(), 1000).code(), status::invalid_argument);
    EXPECT_EQ(ctx_.register_memory(on_host.data(), 1000, memory_kind::cuda(0)).code(), status::invalid_argument);
    const auto part = ctx_.register_memory(on_gpu.data(), 1000, memory_kind::cuda(0));
    EXPECT_TRUE(part) << part.error().message;
    const auto beyond = ctx_.register_memory(on_gpu.data(), std::size_t{1} << 40, memory_kind::cuda(0));
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, status::invalid_argument);
    EXPECT_FALSE(on_gpu.part(99'999, 2)) << "slices end where their region does";
    EXPECT_EQ(ctx_.allocate(std::size_t{1} << 45, memory_kind::cuda(0)).code(), status::out_of_memory);
}

TEST_F(library_gpu, a_session_without_memory_is_refused_and_no_other_is_touched) {
    auto served = serve([](exchange one) { (void)one.reply(std::size_t{10}); }, std::size_t{1} << 30);
    auto first = connect(served, 4096).value();
    // Address space on the host is cheap, memory on the GPU is not: take it first.
    std::vector<region> taken;
    while (auto more = ctx_.allocate(std::size_t{4} << 30, memory_kind::cuda(0))) taken.push_back(std::move(*more));
    const auto second = connect(served, std::size_t{1} << 30, 8);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, status::out_of_memory) << second.error().message;
    send(first);
    EXPECT_EQ(next(first).status, status::ok);
    taken.clear();
    EXPECT_TRUE(connect(served, std::size_t{1} << 20));
}

TEST_F(library_gpu, a_kernel_of_one_does_not_hold_up_another) {
    auto served = serve([](exchange one) {
        if (one.trace_id() == 1) launch_slow_kernel(one.stream(), 300);
        (void)one.reply(std::size_t{10});
    });
    auto slow = connect(served, 4096).value();
    auto quick = connect(served, 4096).value();
    const auto call = slow.begin();
    ASSERT_EQ(call.code(), status::ok);
    ASSERT_EQ(slow.submit(call->id, 100, {.trace_id = 1}), status::ok);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) {
        send(quick);
        const completion got = next(quick);
        EXPECT_EQ(got.status, status::ok);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(200ms));
    EXPECT_EQ(next(slow).status, status::ok);
}

/// The last one: nothing works on the GPU in this process afterwards.
TEST_F(library_gpu, a_faulty_kernel_ends_every_exchange_with_device_lost) {
    auto served = serve([](exchange one) {
        launch_slow_kernel(one.stream(), 20);
        if (one.trace_id() == 3) launch_faulty_kernel(one.stream());
        (void)one.reply(std::size_t{10});
    });
    auto client = connect(served, 4096).value();
    for (std::uint64_t i = 0; i < 8; ++i) {
        const auto call = client.begin();
        ASSERT_EQ(call.code(), status::ok);
        ASSERT_EQ(client.submit(call->id, 100, {.trace_id = i}), status::ok);
    }
    int lost = 0;
    for (int i = 0; i < 8; ++i) {
        const completion got = next(client);
        EXPECT_TRUE(got.status == status::ok || got.status == status::device_lost) << to_string(got.status);
        if (got.status == status::device_lost) ++lost;
    }
    EXPECT_GE(lost, 1);
    const auto start = std::chrono::steady_clock::now();
    send(client);
    EXPECT_EQ(next(client).status, status::device_lost);
    EXPECT_LT(std::chrono::steady_clock::now() - start, patience(1s));
    EXPECT_FALSE(connect(served, 4096)) << "no new session on a GPU that is lost";
}

}  // namespace
}  // namespace accel::tests
