// SPDX-License-Identifier: Apache-2.0
// Recorded services whose sessions have one owner each, step by step: a thread is in the place of a graph's nodes, and
// clients do what no correct client does. Correct clients are in graph_test.cpp.
#include "device/bare_service.hpp"

#include <accel_transport/device/detail/graph/owned_steps.hpp>

#include <algorithm>
#include <array>

namespace accel::tests {
namespace {

constexpr std::uint32_t batch = 4;

/// What lies in the GPU's memory from node to node.
struct iteration_memory {
    device::detail::graph_state state;
    std::array<device::exchange_ref, batch> exchanges;
    std::array<device::iteration_answer, batch> answers;
    device::owned_sessions owned;

    [[nodiscard]] device::detail::graph_memory describe() {
        device::detail::graph_memory out;
        out.state = &state;
        out.exchanges = exchanges.data();
        out.owned = &owned;
        out.iteration = {&state.count, exchanges.data(), answers.data(), nullptr, nullptr, 0, 0, batch, 0};
        return out;
    }
};

class owned_graph_hostile : public bare_service {
  protected:
    [[nodiscard]] gpu_engine engine() const override { return gpu_engine::direct; }
    [[nodiscard]] service_sharing sharing() const override { return service_sharing::exclusive; }
    /// Iterations, until the test ends.
    void serve_as_owner(const device::service_ref& service) override {
        iteration_memory lies;
        const device::detail::graph_memory memory = lies.describe();
        ASSERT_TRUE(device::detail::own_part(service, memory, lies.owned));
        while (!ending_) {
            const auto found = device::detail::gather_owned<device::thread_scope>(lies.owned, memory, 100'000);
            if (found.count == 0) std::this_thread::sleep_for(100us);
            device::detail::tell_gathered(memory, found);
            work(memory.iteration);
            device::detail::end_owned_requests(lies.owned, memory, lies.state.count);
            device::detail::count_iteration(memory);
        }
        EXPECT_EQ(lies.state.requests, requests_);
    }
    /// The recorded kernels: they say how long a response is.
    void work(const device::graph_iteration& iteration) {
        for (std::uint32_t i = 0; i < *iteration.count; ++i) {
            iteration.answers[i].length = iteration.exchanges[i].response_room;
            longest_ = std::max(longest_.load(), iteration.exchanges[i].request_bytes);
        }
        requests_ += *iteration.count;
        while (held_ && *iteration.count > 0) std::this_thread::sleep_for(100us);
    }
    /// A request that recorded kernels work on until `held_` is false.
    void hold(bare_client& client, std::uint32_t length) {
        held_ = true;
        auto request = client.correct(0);
        request.header.length = length;
        request.header.deadline_ns = INT64_MAX;
        const std::uint64_t before = requests_;
        client.post(request);
        ASSERT_EQ(client.outcome(), mlx5::syndrome::none);
        ASSERT_TRUE(eventually(patience(5s), [&] { return requests_ > before; }));
    }

    std::atomic<std::uint64_t> requests_{0};
    std::atomic<std::uint64_t> longest_{0};  ///< request that kernels were given
};

TEST_F(owned_graph_hostile, wrong_requests_end_their_session_and_reach_no_recorded_kernel) {
    expect_wrong_requests_to_end_their_session();
    EXPECT_EQ(longest_, 0U);
}

TEST_F(owned_graph_hostile, a_header_rewritten_under_recorded_kernels_harms_no_other_session) {
    bare_client friendly(shape);
    connect(friendly, good_);
    bare_client evil(shape);
    int owner = 0;
    connect(evil, bad_, &owner);
    expect_served(friendly, 1);
    hold(evil, 10);
    auto rewritten = evil.correct(0);
    rewritten.header.generation = 2;
    rewritten.header.length = rewritten.header.response_room = 1U << 30;
    evil.post(rewritten);
    ASSERT_EQ(evil.outcome(), mlx5::syndrome::none);
    held_ = false;
    EXPECT_TRUE(eventually(patience(5s), [&] { return evil.answer(0).generation == 1; }));
    EXPECT_EQ(evil.answer(0).length, 64U) << "what was read with the request counts";
    expect_loss(status::protocol_error, &owner);
    EXPECT_EQ(longest_, 10U);
    expect_served(friendly, 2);
    end(bad_);
    expect_place();
    end(good_);
}

TEST_F(owned_graph_hostile, a_session_that_ends_keeps_its_place_until_the_recorded_kernels_end) {
    bare_client friendly(shape);
    connect(friendly, good_);
    bare_client leaves(shape);
    connect(leaves, bad_);
    hold(leaves, 0);
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(bad_->close());
        std::this_thread::sleep_for(1ms);
    }
    held_ = false;
    end(bad_);
    expect_place();
    expect_served(friendly, 1);
    end(good_);
}

// It posts no receives, so its answers never leave. The other's requests are in the same iterations.
TEST_F(owned_graph_hostile, a_client_that_never_stops_delays_no_other_session) {
    expect_others_beside_one_that_never_stops();
}

/// What is refused keeps no other client's request out of the iteration for ever.
TEST_F(owned_graph_hostile, late_requests_do_not_delay_others) {
    bare_client friendly(shape);
    connect(friendly, good_);
    bare_client late(shape);
    connect(late, bad_);
    expect_served(friendly, 1);
    for (std::uint32_t i = 1; i < 200; ++i) {
        auto request = late.correct(i % shape.slots);
        request.header.generation = i;
        request.header.deadline_ns = 1;
        late.post(request);
        ASSERT_EQ(late.outcome(), mlx5::syndrome::none);
        if (i % 20 == 0) expect_served(friendly, i / 20 + 1);
    }
    end(bad_);
    end(good_);
}

}  // namespace
}  // namespace accel::tests
