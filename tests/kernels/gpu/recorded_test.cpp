// SPDX-License-Identifier: Apache-2.0
// Services of recorded kernels on a GPU: graphs that begin anew by themselves.
#include "conformance/payload.hpp"
#include "digits/dataset.hpp"
#include "digits/digit_answer.hpp"
#include "digits/embedded.hpp"
#include "digits/frame.hpp"
#include "digits/gpu_network.hpp"
#include "digits/preprocess.hpp"
#include "gpu/connect.hpp"
#include "gpu/requests_wanted.hpp"
#include "gpu/tensor_kernels.hpp"
#include "loopback.hpp"
#include "patience.hpp"

#include <accel_transport/accel_transport.hpp>
#include <accel_transport/gpu_graph.hpp>
#include <accel_transport/gpu_service.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

namespace digits = examples::digits;

/// Who serves a session, and where its queues are.
struct recorded_way {
    const char* name;
    service_sharing sharing;
    queue_location queues;
};
constexpr recorded_way by_any{"shared", service_sharing::shared, queue_location::automatic};
constexpr recorded_way by_owner{"exclusive", service_sharing::exclusive, queue_location::host};
constexpr recorded_way by_owner_on_gpu{"exclusive_gpu_queues", service_sharing::exclusive, queue_location::gpu};
constexpr recorded_way recorded_ways[]{by_any, by_owner, by_owner_on_gpu};

class recorded : public ::testing::Test {
  protected:
    [[nodiscard]] virtual recorded_way served() const { return by_any; }
    void TearDown() override {
        if (graph_) {
            EXPECT_EQ(graph_->stop(patience(10s)), status::ok);
            const auto seen = graph_->statistics();
            const auto host = service_->statistics();
            const auto us = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; };
            const auto& part = seen.stages;
            std::cout << served().name << ", " << seen.nodes << " nodes: " << seen.requests << " requests in "
                      << seen.iterations << " iterations; from arrival to the response posted p50 " << us(seen.p50)
                      << " us, p99 " << us(seen.p99) << ", mean " << us(seen.mean) << ", at least " << us(seen.min)
                      << "; of the mean: waiting " << us(part.waiting) << ", copy in " << us(part.copy_in) << ", work "
                      << us(part.work) << ", copy out " << us(part.copy_out) << ", answer " << us(part.answer)
                      << "; CPU of the service's thread: " << us(host.cpu_user + host.cpu_kernel) / 1000 << " ms\n";
        }
    }
    void listen(std::size_t max_bytes = std::size_t{64} << 10) {
        options_.max_slots = 16;
        options_.max_request_bytes = options_.max_response_bytes = max_bytes;
        options_.security.insecure = true;
        options_.peer_timeout = patience(2s);
        options_.kernels.sharing = served().sharing;
        options_.kernels.queues = served().queues;
        auto made = gpu_service::listen(context_, "gpu://" + own_loopback() + ":0", options_);
        if (!made && made.error().code == status::unsupported) GTEST_SKIP() << made.error().message;
        ASSERT_TRUE(made.ok()) << made.error().message;
        service_.emplace(std::move(*made));
    }
    void start(const gpu_graph_options& options, const gpu_graph::recorder& record) {
        auto made = gpu_graph::start(*service_, options, record);
        ASSERT_TRUE(made.ok()) << made.error().message;
        graph_.emplace(std::move(*made));
    }
    [[nodiscard]] channel connect(std::size_t bytes, std::uint32_t slots = 8) {
        return connect_to_service(client_context_, service_->endpoint(), std::max<std::size_t>(bytes, 64), slots);
    }

    context context_ = context::open().value();
    context client_context_ = context::open().value();
    gpu_service_options options_ = gpu_service::defaults();
    std::optional<gpu_service> service_;
    std::optional<digits::gpu_network> on_gpu_;
    std::optional<gpu_graph> graph_;  ///< goes before what it uses does
};

gpu_graph::recorder sums(int nodes) {
    return [nodes](CUstream_st* stream, const device::graph_iteration& iteration) {
        if (record_sums(stream, iteration, nodes)) return result<void>{};
        return result<void>{error{status::system_error, 0, "the kernels cannot be recorded"}};
    };
}

/// Whether each byte of the answer is the request's and `more`.
bool is_sum(std::span<const std::byte> answer, std::span<const std::byte> request, int more) {
    return std::equal(answer.begin(), answer.end(), request.begin(), request.end(),
                      [more](auto a, auto r) { return a == static_cast<std::byte>(static_cast<int>(r) + more); });
}

/// Calls one after the other; how many were right.
int call_sums(channel& client, int calls, std::size_t bytes, int nodes, std::uint64_t seed) {
    std::vector<std::byte> request(bytes);
    int right = 0;
    for (int i = 0; i < calls; ++i) {
        fill(request, seed + static_cast<std::uint64_t>(i));
        auto answer = client.call(request);
        if (!answer) return right;
        right += is_sum(answer->response, request, nodes) ? 1 : 0;
    }
    return right;
}

struct recorded_turn {
    recorded_way served;
    int nodes;                       ///< with the library's two: 2 more
    std::uint32_t max_sessions = 2;  ///< an owner of 32 slots sees all of them in one look
};
class recorded_nodes : public recorded, public ::testing::WithParamInterface<recorded_turn> {
  protected:
    [[nodiscard]] recorded_way served() const override { return GetParam().served; }
};

TEST_P(recorded_nodes, recorded_nodes_compute_the_answers) {
    const auto [served, nodes, max_sessions] = GetParam();
    options_.max_sessions = max_sessions;
    listen();
    if (IsSkipped()) return;
    constexpr std::size_t bytes = 1024;
    start({1, bytes, bytes, 1}, sums(nodes));
    channel client = connect(bytes);
    const int calls = static_cast<int>(requests_wanted(4'000));
    EXPECT_EQ(call_sums(client, calls, bytes, nodes, 7), calls);
}
constexpr recorded_turn recorded_turns[]{
    {by_any, 1},          {by_any, 2},          {by_any, 4},     {by_any, 8},          {by_owner, 1},
    {by_owner, 2},        {by_owner, 4},        {by_owner, 8},   {by_owner_on_gpu, 1}, {by_owner_on_gpu, 2},
    {by_owner_on_gpu, 4}, {by_owner_on_gpu, 8}, {by_any, 2, 64}, {by_owner, 2, 64},    {by_owner_on_gpu, 2, 64},
};
INSTANTIATE_TEST_SUITE_P(turn, recorded_nodes, ::testing::ValuesIn(recorded_turns), [](const auto& each) {
    const recorded_turn& is = each.param;
    return std::string{is.served.name} + "_of_" + std::to_string(is.nodes + 2) + "_nodes_" +
           std::to_string(is.max_sessions) + "_sessions";
});

class recorded_in_any_way : public recorded, public ::testing::WithParamInterface<recorded_way> {
  protected:
    [[nodiscard]] recorded_way served() const override { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(way, recorded_in_any_way, ::testing::ValuesIn(recorded_ways),
                         [](const auto& each) { return std::string{each.param.name}; });

TEST_P(recorded_in_any_way, works_in_place) {
    listen();
    if (IsSkipped()) return;
    start({4, 0, 0, 1}, sums(2));
    channel client = connect(4096);
    for (const std::size_t bytes : {1U, 7U, 64U, 1000U, 4096U}) {
        EXPECT_EQ(call_sums(client, 20, bytes, 2, bytes), 20) << bytes;
    }
}

TEST_P(recorded_in_any_way, copies_long_tensors_with_many_blocks) {
    constexpr std::size_t bytes = std::size_t{3} << 20;
    options_.max_sessions = 4;
    listen(bytes);
    if (IsSkipped()) return;
    start({1, bytes, bytes, 1}, sums(1));
    channel client = connect(bytes, 2);
    EXPECT_EQ(call_sums(client, 20, bytes, 1, 3), 20);
}

TEST_P(recorded_in_any_way, recorded_kernels_fail_single_requests) {
    listen();
    if (IsSkipped()) return;
    start({8, 64, 64, 1}, [](CUstream_st* stream, const device::graph_iteration& iteration) {
        const bool done = record_sums(stream, iteration, 1) && record_failures(stream, iteration, 9);
        return done ? result<void>{} : result<void>{error{status::system_error, 0, "not recorded"}};
    });
    channel client = connect(64);
    std::array<std::byte, 64> request{};
    for (int i = 0; i < 60; ++i) {
        request[0] = static_cast<std::byte>(i);
        const auto answer = client.call(request);
        EXPECT_EQ(answer.ok(), i % 3 != 0) << i;
        if (!answer) {
            EXPECT_EQ(answer.error().code, status::application_error);
        }
    }
    EXPECT_EQ(client.call(std::span(request).first(63)).error().code, status::invalid_argument);
}

using way_and_sessions = std::tuple<recorded_way, int>;
class recorded_sessions : public recorded, public ::testing::WithParamInterface<way_and_sessions> {
  protected:
    [[nodiscard]] recorded_way served() const override { return std::get<0>(GetParam()); }
};

TEST_P(recorded_sessions, many_sessions_get_correct_answers) {
    listen();
    if (IsSkipped()) return;
    constexpr std::size_t bytes = 256;
    start({16, bytes, bytes, 4}, sums(2));
    const int sessions = std::get<1>(GetParam());
    const int calls = static_cast<int>(requests_wanted(10'000)) / sessions;
    std::atomic<int> right{0};
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    const int count = std::min(sessions, 8);
    for (int t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
            std::vector<channel> clients;
            for (int i = t; i < sessions; i += count) clients.push_back(connect(bytes));
            for (channel& each : clients) right += call_sums(each, calls, bytes, 2, static_cast<std::uint64_t>(t));
        });
    }
    for (std::thread& each : threads) each.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(right.load(), calls * sessions);
    std::cout << sessions << " sessions: " << right.load() / took.count() << " requests/s\n";
}
INSTANTIATE_TEST_SUITE_P(sessions, recorded_sessions,
                         ::testing::Combine(::testing::ValuesIn(recorded_ways), ::testing::Values(1, 4, 16, 64)),
                         [](const auto& each) {
                             return std::string{std::get<0>(each.param).name} + "_" +
                                    std::to_string(std::get<1>(each.param));
                         });

TEST_P(recorded_in_any_way, stops_within_a_bound_while_clients_call) {
    listen();
    if (IsSkipped()) return;
    start({4, 256, 256, 2}, sums(1));
    std::vector<std::thread> clients;
    for (int t = 0; t < 3; ++t) {
        clients.emplace_back([&] {
            channel client = connect(256);
            (void)call_sums(client, 1'000'000, 256, 1, 5);
        });
    }
    std::this_thread::sleep_for(300ms);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(graph_->stop(patience(5s)), status::ok);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), 3000.0);
    service_->stop();
    for (std::thread& each : clients) each.join();
    EXPECT_GT(graph_->statistics().requests, 0U);
}

TEST_F(recorded, work_that_no_graph_can_do_is_refused) {
    listen();
    if (IsSkipped()) return;
    auto made = gpu_graph::start(*service_, {}, [](CUstream_st* stream, const device::graph_iteration&) {
        return record_host_function(stream) ? result<void>{} : result<void>{error{status::system_error, 0, "?"}};
    });
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, status::invalid_argument) << made.error().message;
}

digits::digit_answer on_host(const digits::network& model, std::span<const float> tensor) {
    digits::digit_answer answer;
    const digits::failure why = model.classify(tensor, answer.scores);
    answer.label = why == digits::failure::none ? static_cast<std::uint32_t>(digits::best_class(answer.scores))
                                                : digits::label_of(why);
    return answer;
}

class recorded_digits : public recorded, public ::testing::WithParamInterface<bool> {};

/// Tensors, and raw frames, all test images: the same bits as on the host.
TEST_P(recorded_digits, recorded_digits_equal_those_of_the_host) {
    const bool raw = GetParam();
    const std::size_t bytes = raw ? digits::frame_bytes : digits::tensor_bytes;
    options_.max_sessions = 4;
    listen(bytes);
    if (IsSkipped()) return;
    const auto model = digits::network::load(digits::embedded_weights()).value.value();
    auto made = digits::gpu_network::create(0, model, 1);
    ASSERT_TRUE(made.ok()) << made.error().message;
    on_gpu_.emplace(std::move(*made));
    start({1, bytes, sizeof(digits::digit_answer), 1}, [&](CUstream_st* stream, const auto& iteration) {
        digits::gpu_scratch* const scratch = on_gpu_->scratch_for(stream);
        if (raw) on_gpu_->preprocess(stream, iteration.input, scratch);
        raw ? on_gpu_->infer(stream, scratch, iteration.output)
            : on_gpu_->infer(stream, iteration.input, iteration.output);
        return result<void>{};
    });
    const auto images = digits::dataset::load(digits::embedded_test_images()).value.value();
    channel client = connect(bytes, 2);
    std::vector<std::byte> request(bytes);
    std::array<float, digits::tensor_values> tensor{};
    for (std::size_t i = 0; i < images.size(); ++i) {
        if (raw) {
            ASSERT_EQ(digits::draw_frame(images[i], i, request), digits::failure::none);
            ASSERT_EQ(digits::preprocess(request, tensor), digits::failure::none);
        } else {
            digits::to_tensor(images[i], tensor);
            std::memcpy(request.data(), tensor.data(), bytes);
        }
        auto answer = client.call(request);
        ASSERT_TRUE(answer.ok()) << answer.error().message;
        const auto expected = on_host(model, tensor);
        ASSERT_EQ(answer->response.size(), sizeof expected);
        EXPECT_EQ(std::memcmp(answer->response.data(), &expected, sizeof expected), 0) << i;
    }
}
INSTANTIATE_TEST_SUITE_P(input, recorded_digits, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "raw" : "tensor"; });

}  // namespace
}  // namespace accel::tests
