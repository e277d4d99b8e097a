// SPDX-License-Identifier: Apache-2.0
// Batches with one doorbell, and deferred doorbells, on rings that no adapter reads.
#include "bench/kernels/post/batch.hpp"
#include "bench/kernels/post/deferred_doorbell.hpp"
#include "team_scope.hpp"

#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

template <>
struct accel::bench::sum_of<accel::tests::team_scope> {
    using team = accel::tests::team_scope;
    static wqebb_sum add(std::uint32_t mine) noexcept {
        team::told[team::rank()] = mine;
        team::meet();
        wqebb_sum out;
        for (std::uint32_t i = 0; i < team::threads; ++i) {
            out.before += i < team::rank() ? static_cast<std::uint32_t>(team::told[i]) : 0;
            out.all += static_cast<std::uint32_t>(team::told[i]);
        }
        team::meet();
        return out;
    }
};

namespace accel::tests {
namespace {

/// What each of a team says.
using team_statuses = std::array<status, team_scope::threads>;

using device::thread_scope;

struct plain_queue {
    explicit plain_queue(std::uint32_t blocks, std::uint32_t start = 0)
        : ring(std::size_t{blocks} * mlx5::wqebb_bytes), state{start, start} {
        ref = {ring.data(), blocks, 0x1234, &record, &doorbell, &state};
    }
    [[nodiscard]] std::uint32_t counted() const { return mlx5::from_be(record); }
    std::vector<std::byte> ring;
    mlx5::be32 record{};
    std::uint64_t doorbell = 0;
    mlx5::send_queue_state state;
    mlx5::send_queue_ref ref;
};

/// Writes of any length up to `most`, half of them with their bytes in the request.
class random_writes {
  public:
    random_writes(std::mt19937& dice, std::size_t count, std::uint32_t most) : ranges_(count), all(count) {
        for (std::size_t i = 0; i < count; ++i) {
            ranges_[i] = {reinterpret_cast<std::uintptr_t>(bytes().data()) + dice() % 64,
                          static_cast<std::uint32_t>(dice() % most), static_cast<std::uint32_t>(dice())};
            all[i].operation = dice() % 2 == 0 ? mlx5::opcode::write : mlx5::opcode::write_immediate;
            all[i].carries_bytes = dice() % 2 == 0;
            all[i].flags = dice() % 2 == 0 ? mlx5::flag_signalled : 0;
            all[i].ranges = 1;
            all[i].first = &ranges_[i];
            all[i].immediate = mlx5::be32{static_cast<std::uint32_t>(dice())};
            all[i].remote_address = dice();
            all[i].remote_key = static_cast<std::uint32_t>(dice());
        }
    }

  private:
    static const std::array<std::uint8_t, 1024>& bytes() {
        static const auto made = [] {
            std::array<std::uint8_t, 1024> out{};
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint8_t>(i * 7 + 1);
            return out;
        }();
        return made;
    }
    std::vector<mlx5::local_range> ranges_;

  public:
    std::vector<mlx5::work_request> all;
};

std::uint32_t as_count(std::size_t size) {
    return static_cast<std::uint32_t>(size);
}

TEST(send_scopes, a_batch_equals_its_single_requests_and_rings_once) {
    constexpr std::uint32_t start = 0xffff'ffd3;  // soon to wrap
    plain_queue together(64, start);
    plain_queue singly(64, start);
    std::mt19937 dice(6);
    std::uint32_t posted = 0;
    for (int batch = 0; batch < 20'000; ++batch) {
        const random_writes requests(dice, 1 + dice() % 5, 200);
        const status outcome =
            bench::post<thread_scope>(together.ref, requests.all.data(), as_count(requests.all.size()));
        if (outcome == status::again) {
            ASSERT_GT(together.state.reserved - together.state.released, 0U);
            ASSERT_TRUE(mlx5::release_to(together.ref, together.state.reserved));
            ASSERT_TRUE(mlx5::release_to(singly.ref, singly.state.reserved));
            continue;
        }
        ASSERT_EQ(outcome, status::ok);
        posted += as_count(requests.all.size());
        for (const mlx5::work_request& each : requests.all) {
            ASSERT_EQ(mlx5::post(singly.ref, each), status::ok);
        }
        ASSERT_EQ(together.ring, singly.ring) << batch;
        ASSERT_EQ(together.record, singly.record);
        ASSERT_EQ(together.doorbell, singly.doorbell) << "of the last request";
        ASSERT_EQ(together.state.reserved, singly.state.reserved);
    }
    EXPECT_GT(posted, 20'000U);
}

TEST(send_scopes, a_batch_that_does_not_fit_takes_nothing) {
    plain_queue queue(8);
    std::mt19937 dice(7);
    random_writes requests(dice, 9, 2);
    for (mlx5::work_request& each : requests.all) each.carries_bytes = false;
    EXPECT_EQ(bench::post<thread_scope>(queue.ref, requests.all.data(), 9), status::message_too_large)
        << "than the ring ever will";
    ASSERT_EQ(bench::post<thread_scope>(queue.ref, requests.all.data(), 5), status::ok);
    const std::vector<std::byte> before = queue.ring;
    const std::uint64_t rung = queue.doorbell;
    EXPECT_EQ(bench::post<thread_scope>(queue.ref, requests.all.data(), 4), status::again);
    EXPECT_EQ(queue.ring, before);
    EXPECT_EQ(queue.doorbell, rung);
    EXPECT_EQ(queue.counted(), 5U);
    EXPECT_EQ(mlx5::free_wqebbs(queue.ref), 3U);
}

TEST(send_scopes, a_request_that_is_too_long_stops_the_batch) {
    plain_queue queue(64);
    std::mt19937 dice(8);
    random_writes requests(dice, 3, 2);
    const mlx5::local_range longest{0, 1000, 0};
    requests.all[1].carries_bytes = true;
    requests.all[1].first = &longest;
    EXPECT_EQ(bench::post<thread_scope>(queue.ref, requests.all.data(), 3), status::message_too_large);
    EXPECT_EQ(mlx5::free_wqebbs(queue.ref), 64U);
    EXPECT_EQ(queue.counted(), 0U);
}

TEST(send_scopes, a_batch_of_nothing_rings_nothing) {
    plain_queue queue(8);
    EXPECT_EQ(bench::post<thread_scope>(queue.ref, nullptr, 0), status::ok);
    EXPECT_EQ(queue.doorbell, 0U);
    EXPECT_EQ(queue.counted(), 0U);
    EXPECT_EQ(mlx5::free_wqebbs(queue.ref), 8U);
}

TEST(send_scopes, the_value_of_the_doorbell_is_known_without_the_ring) {
    plain_queue queue(16, 0xfff9);
    std::mt19937 dice(9);
    for (int i = 0; i < 100; ++i) {
        const random_writes one(dice, 1, 60);
        const mlx5::request_size size = mlx5::size_of(one.all[0]);
        std::uint32_t first = 0;
        ASSERT_EQ(mlx5::reserve(queue.ref, mlx5::wqebbs_of(size.ds), first), status::ok);
        mlx5::fill(queue.ref, first, one.all[0], size);
        ASSERT_EQ(mlx5::doorbell_of(queue.ref, first, one.all[0], size), mlx5::doorbell_of(queue.ref, first));
        ASSERT_TRUE(mlx5::release_to(queue.ref, queue.state.reserved));
    }
}

TEST(send_scopes, only_reserved_entries_can_be_released) {
    plain_queue queue(8, 0xffff'fffe);
    mlx5::work_request nothing;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(mlx5::post(queue.ref, nothing), status::ok);
    EXPECT_FALSE(mlx5::release_to(queue.ref, 3)) << "not reserved yet";
    EXPECT_TRUE(mlx5::release_to(queue.ref, 1));
    EXPECT_FALSE(mlx5::release_to(queue.ref, 0)) << "released before";
    EXPECT_EQ(mlx5::free_wqebbs(queue.ref), 7U);
}

/// When each posts its share, one behind another.
team_statuses post_as_team(const mlx5::send_queue_ref& queue, const std::vector<mlx5::work_request>& all,
                           const std::array<std::uint32_t, team_scope::threads>& shares) {
    team_statuses said{};
    team_scope::run([&](std::uint32_t rank) {
        const auto first = std::accumulate(shares.begin(), shares.begin() + rank, 0U);
        said[rank] = bench::post<team_scope>(queue, all.data() + first, shares[rank]);
    });
    return said;
}

TEST(send_scopes, the_shares_of_a_team_lie_in_the_order_of_its_ranks) {
    plain_queue team(128, 0xffff'ffa0);
    plain_queue alone(128, 0xffff'ffa0);
    std::mt19937 dice(10);
    for (int batch = 0; batch < 200; ++batch) {
        std::array<std::uint32_t, team_scope::threads> shares{};
        for (std::uint32_t& each : shares) each = static_cast<std::uint32_t>(dice() % 4);
        const random_writes requests(dice, shares[0] + shares[1] + shares[2] + shares[3], 200);
        for (const status said : post_as_team(team.ref, requests.all, shares)) {
            ASSERT_EQ(said, status::ok) << batch;
        }
        ASSERT_EQ(bench::post<thread_scope>(alone.ref, requests.all.data(), as_count(requests.all.size())), status::ok);
        ASSERT_EQ(team.ring, alone.ring) << batch;
        ASSERT_EQ(team.record, alone.record);
        ASSERT_EQ(team.doorbell, alone.doorbell) << "of the last that has any";
        ASSERT_TRUE(mlx5::release_to(team.ref, team.state.reserved));
        ASSERT_TRUE(mlx5::release_to(alone.ref, alone.state.reserved));
    }
}

TEST(send_scopes, a_team_hears_that_its_batch_does_not_fit) {
    plain_queue queue(8);
    std::mt19937 dice(11);
    random_writes requests(dice, 9, 2);
    for (mlx5::work_request& each : requests.all) each.carries_bytes = false;
    for (const status said : post_as_team(queue.ref, requests.all, {3, 0, 3, 3})) {
        EXPECT_EQ(said, status::message_too_large);
    }
    for (const status said : post_as_team(queue.ref, requests.all, {0, 5, 0, 0})) EXPECT_EQ(said, status::ok);
    for (const status said : post_as_team(queue.ref, requests.all, {1, 1, 1, 1})) {
        EXPECT_EQ(said, status::again);
    }
    EXPECT_EQ(queue.counted(), 5U);
    EXPECT_EQ(mlx5::free_wqebbs(queue.ref), 3U);
}

TEST(deferred_doorbell, a_deferred_doorbell_rings_with_the_next_request_or_on_command) {
    plain_queue queue(8);
    bench::deferred_doorbell deferred;
    mlx5::work_request nothing;
    bench::ring(queue.ref, deferred);
    EXPECT_EQ(queue.doorbell, 0U) << "nothing is deferred";
    for (std::uint32_t i = 0; i < 4; ++i) {
        const std::uint64_t before = i == 0 ? 0 : mlx5::doorbell_of(queue.ref, i - 1);
        ASSERT_EQ(bench::post(queue.ref, nothing, deferred), status::ok);
        EXPECT_EQ(queue.counted(), i + 1) << "the record does not wait";
        EXPECT_EQ(queue.doorbell, before);
    }
    bench::ring(queue.ref, deferred);
    EXPECT_EQ(queue.doorbell, mlx5::doorbell_of(queue.ref, 3));
    queue.doorbell = 0;
    bench::ring(queue.ref, deferred);
    EXPECT_EQ(queue.doorbell, 0U) << "once";
}

TEST(deferred_doorbell, a_doorbell_stays_deferred_while_the_ring_is_full) {
    plain_queue queue(2);
    bench::deferred_doorbell deferred;
    mlx5::work_request nothing;
    ASSERT_EQ(bench::post(queue.ref, nothing, deferred), status::ok);
    ASSERT_EQ(bench::post(queue.ref, nothing, deferred), status::ok);
    EXPECT_EQ(bench::post(queue.ref, nothing, deferred), status::again);
    EXPECT_EQ(queue.doorbell, mlx5::doorbell_of(queue.ref, 0));
    bench::ring(queue.ref, deferred);
    EXPECT_EQ(queue.doorbell, mlx5::doorbell_of(queue.ref, 1));
}

}  // namespace
}  // namespace accel::tests
