// SPDX-License-Identifier: Apache-2.0
// One send queue for many threads, with a thread in the adapter's place that looks at nothing but what the
// doorbell record counts.
#include "patience.hpp"

#include <accel_transport/device/detail/mlx5/shared_send_queue.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace accel::tests {
namespace {

/// What a request carries: whose it is and which.
struct mark {
    std::uint32_t poster;
    std::uint32_t number;
};

struct shared_queue {
    explicit shared_queue(std::uint32_t blocks, std::uint32_t start = 0)
        : ring(std::size_t{blocks} * mlx5::wqebb_bytes), whole(blocks) {
        state = {start, start, start};
        record = mlx5::to_be32(start & 0xffffU);
        ref = {{ring.data(), blocks, 0x42, &record, &doorbell, nullptr}, &state, whole.data()};
        mlx5::clear_ready_requests(ref);
    }
    std::vector<std::byte> ring;
    std::vector<mlx5::ready_request> whole;
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::shared_send_queue_state state;
    mlx5::shared_send_queue_ref ref;
};

/// Carries `length` bytes, the first of which are `what`.
status post(const mlx5::shared_send_queue_ref& to, mark what, std::uint32_t length) {
    std::array<std::byte, 256> bytes{};
    std::memcpy(bytes.data(), &what, sizeof what);
    const mlx5::local_range range{reinterpret_cast<std::uintptr_t>(bytes.data()), length, 0};
    mlx5::work_request request;
    request.operation = mlx5::opcode::write;
    request.carries_bytes = true;
    request.ranges = 1;
    request.first = &range;
    return mlx5::post(to, request);
}

/// As an adapter: no lock, and nothing that orders but what the posters do.
[[gnu::no_sanitize_thread]] void read_block(const std::byte* from, std::byte* to) {
    for (std::size_t i = 0; i < mlx5::wqebb_bytes; ++i) to[i] = const_cast<const volatile std::byte*>(from)[i];
}

TEST(shared_send_queue, requests_of_many_threads_are_posted_whole_and_once) {
    constexpr std::uint32_t posters = 4;
    constexpr std::uint32_t each = 20'000;
    shared_queue of(64, 0xffff'ff00);  // soon to wrap
    std::atomic<bool> giving_up{false};
    std::vector<std::thread> threads;
    for (std::uint32_t poster = 0; poster < posters; ++poster) {
        threads.emplace_back([&, poster] {
            for (std::uint32_t number = 0; number < each && !giving_up;) {
                const std::uint32_t length = 8 + (number * 37 + poster) % 200;
                if (post(of.ref, {poster, number}, length) == status::ok)
                    ++number;
                else
                    std::this_thread::yield();
            }
        });
    }
    std::vector<std::uint32_t> next(posters, 0);
    std::uint32_t at = 0xffff'ff00;
    std::uint64_t wrong = 0;
    patient_wait arrival;
    for (std::uint32_t seen = 0; seen < posters * each;) {
        const auto told = static_cast<std::uint16_t>(mlx5::from_be(mlx5::load_whole(&of.record)));
        const auto more = static_cast<std::uint16_t>(told - static_cast<std::uint16_t>(at));
        if (more == 0) {
            if (!arrival.goes_on()) break;
            continue;
        }
        arrival.restart();
        ASSERT_LE(more, 64U) << "the record went back";
        mlx5::order_owner_before_completion();
        const std::uint32_t end = at + more;
        std::uint32_t last = at;
        while (at != end) {
            std::array<std::byte, mlx5::wqebb_bytes> block;
            read_block(of.ring.data() + std::size_t{at & 63} * mlx5::wqebb_bytes, block.data());
            mlx5::control_segment control;
            std::memcpy(&control, block.data(), sizeof control);
            mark what{};
            std::memcpy(&what, block.data() + 36, sizeof what);  // control, remote, length
            wrong += ((mlx5::from_be(control.opmod_idx_opcode) >> 8) & 0xffffU) == (at & 0xffffU) ? 0U : 1U;
            if (what.poster < posters && what.number == next[what.poster])
                ++next[what.poster];
            else
                ++wrong;
            last = at;
            at += mlx5::wqebbs_of(mlx5::from_be(control.qpn_ds) & mlx5::max_ds);
            ++seen;
        }
        ASSERT_EQ(at, end) << "a request was told in part";
        if (!mlx5::release(of.ref, static_cast<std::uint16_t>(last))) ++wrong;
    }
    giving_up = true;
    for (std::thread& one : threads) one.join();
    EXPECT_EQ(wrong, 0U);
    for (const std::uint32_t count : next) EXPECT_EQ(count, each);
    EXPECT_EQ(of.state.reserved, of.state.published) << "and nobody rings";
    EXPECT_EQ(of.state.released, of.state.published);
}

TEST(shared_send_queue, requests_after_an_incomplete_one_wait_for_their_doorbell) {
    shared_queue of(8);
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    ASSERT_EQ(mlx5::reserve(of.ref, 1, first), status::ok);
    ASSERT_EQ(mlx5::reserve(of.ref, 1, second), status::ok);
    mlx5::work_request request;
    const auto finish = [&](std::uint32_t block) {
        const auto size = mlx5::size_of(request);
        mlx5::mark_ready(of.ref, block, block + 1, mlx5::doorbell_of(of.ref.queue, block, request, size));
        mlx5::announce(of.ref);
    };
    mlx5::fill(of.ref.queue, second, request, mlx5::size_of(request));
    finish(second);
    EXPECT_EQ(mlx5::from_be(of.record), 0U);
    EXPECT_EQ(of.doorbell, 0U);
    mlx5::fill(of.ref.queue, first, request, mlx5::size_of(request));
    finish(first);
    EXPECT_EQ(mlx5::from_be(of.record), 2U);
    std::uint64_t last = 0;
    std::memcpy(&last, of.ring.data() + mlx5::wqebb_bytes, sizeof last);
    EXPECT_EQ(of.doorbell, last) << "of the last request";
}

TEST(shared_send_queue, a_full_queue_says_again_until_requests_are_done) {
    shared_queue of(8, 0xffff'fffd);
    for (std::uint32_t i = 0; i < 4; ++i) ASSERT_EQ(post(of.ref, {0, i}, 60), status::ok);  // of two blocks
    EXPECT_EQ(post(of.ref, {0, 4}, 60), status::again);
    EXPECT_EQ(post(of.ref, {0, 4}, 8), status::again) << "not one block is left";
    EXPECT_FALSE(mlx5::release(of.ref, 0xfffc)) << "before the first";
    EXPECT_FALSE(mlx5::release(of.ref, 0xfffe)) << "in the middle of one";
    EXPECT_TRUE(mlx5::release(of.ref, 0xffff)) << "the second, and the first with it";
    EXPECT_EQ(post(of.ref, {0, 4}, 60), status::ok);
    EXPECT_EQ(post(of.ref, {0, 5}, 60), status::ok);
    EXPECT_EQ(post(of.ref, {0, 6}, 60), status::again);
    mlx5::work_request longest;
    const mlx5::local_range range{0, 1000, 0};
    longest.carries_bytes = true;
    longest.ranges = 1;
    longest.first = &range;
    EXPECT_EQ(mlx5::post(of.ref, longest), status::message_too_large);
}

}  // namespace
}  // namespace accel::tests
