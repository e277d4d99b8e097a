// SPDX-License-Identifier: Apache-2.0
// Batches posted by a thread, a warp and blocks of a GPU, against those of the CPU.
#include "bench/kernels/post/batch.hpp"
#include "gpu/post_together.hpp"

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

struct freed {
    template <class Object>
    void operator()(Object* memory) const noexcept {
        free_shared(memory);
    }
};
template <class Object>
using shared = std::unique_ptr<Object[], freed>;  // NOLINT(modernize-avoid-c-arrays)

template <class Object>
shared<Object> make_shared_with_gpu(std::size_t count) {
    return shared<Object>(static_cast<Object*>(shared_with_gpu(count * sizeof(Object))));
}

constexpr std::uint32_t blocks = 4096;
constexpr std::uint32_t max_threads = 1024;
constexpr std::uint32_t max_requests = max_threads;

struct shape {
    const char* name;
    gpu_scope who;
    std::uint32_t x, y, z;
    std::uint32_t times;
};
void PrintTo(const shape& what, std::ostream* out) {
    *out << what.name;
}

struct send_scopes_on_gpu : ::testing::TestWithParam<shape> {};

TEST_P(send_scopes_on_gpu, a_batch_equals_the_one_the_cpu_posts) {
    const shape& asked = GetParam();
    together what{asked.who, asked.x, asked.y, asked.z, asked.times, {}, nullptr, nullptr};
    const auto ring = make_shared_with_gpu<std::byte>(std::size_t{blocks} * mlx5::wqebb_bytes);
    if (!ring) GTEST_SKIP() << "there is no GPU";
    const auto words = make_shared_with_gpu<std::uint64_t>(2);
    const auto state = make_shared_with_gpu<mlx5::send_queue_state>(1);
    const auto requests = make_shared_with_gpu<mlx5::work_request>(max_requests);
    const auto ranges = make_shared_with_gpu<mlx5::local_range>(max_requests);
    const auto bytes = make_shared_with_gpu<std::uint32_t>(64);
    const auto outcomes = make_shared_with_gpu<status>(max_threads);
    for (std::uint32_t i = 0; i < 64; ++i) bytes[i] = i * 0x01020304U + 99;
    for (std::uint32_t i = 0; i < max_requests; ++i) {
        const bool carries = i % 5 == 0;
        // Of one, two and three blocks; one carries an odd number of bytes from an odd place.
        const std::uint32_t length = carries ? i % 160 : i;
        ranges[i] = {reinterpret_cast<std::uintptr_t>(bytes.get()) + i % 8, length, i};
        requests[i] = {};
        requests[i].carries_bytes = carries;
        requests[i].ranges = 1;
        requests[i].first = &ranges[i];
        requests[i].remote_address = 0x7000'0000ULL + i;
        requests[i].remote_key = i;
    }
    what.queue = {ring.get(), blocks, 0x77, reinterpret_cast<mlx5::be32*>(words.get()), words.get() + 1, state.get()};
    state[0] = {0xffff'ff00, 0xffff'ff00};
    what.requests = requests.get();
    what.outcomes = outcomes.get();
    ASSERT_TRUE(post_together(what));

    std::vector<std::byte> wanted(std::size_t{blocks} * mlx5::wqebb_bytes);
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state counters{0xffff'ff00, 0xffff'ff00};
    const mlx5::send_queue_ref alone{wanted.data(), blocks, 0x77, &record, &doorbell, &counters};
    const std::uint32_t threads = what.who == gpu_scope::thread ? 1 : what.x * what.y * what.z;
    for (std::uint32_t i = 0; i < what.times; ++i) {
        ASSERT_EQ(bench::post<device::thread_scope>(alone, requests.get(), requests_below(threads)), status::ok);
        ASSERT_TRUE(mlx5::release_to(alone, counters.reserved));
    }
    for (std::uint32_t rank = 0; rank < threads; ++rank) EXPECT_EQ(outcomes[rank], status::ok) << rank;
    EXPECT_EQ(std::memcmp(ring.get(), wanted.data(), wanted.size()), 0);
    EXPECT_EQ(*what.queue.doorbell_record, record);
    EXPECT_EQ(words[1], doorbell);
    EXPECT_EQ(state[0].reserved, counters.reserved);
}

INSTANTIATE_TEST_SUITE_P(shapes, send_scopes_on_gpu,
                         ::testing::Values(shape{"warp_once", gpu_scope::warp, 32, 1, 1, 1},
                                           shape{"warp_often", gpu_scope::warp, 32, 1, 1, 300},
                                           shape{"block_of_two", gpu_scope::block, 2, 1, 1, 3},
                                           shape{"block_of_48", gpu_scope::block, 48, 1, 1, 50},
                                           shape{"block_of_7x5x3", gpu_scope::block, 7, 5, 3, 50},
                                           shape{"block_of_1024", gpu_scope::block, 1024, 1, 1, 20}),
                         [](const auto& of) { return std::string{of.param.name}; });

}  // namespace
}  // namespace accel::tests
