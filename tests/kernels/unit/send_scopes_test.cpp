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

constexpr std::uint32_t in_ring = 64;
constexpr std::uint32_t soon_to_wrap = 0xffff'ffd3;

/// What a batch must be: its requests one by one, or nothing.
class expected_posts {
  public:
    status post(const std::vector<mlx5::work_request>& all) {
        if (all.size() == 1) return mlx5::post(queue_.ref, all[0]);
        std::uint32_t wqebbs = 0;
        for (const mlx5::work_request& each : all) {
            const std::uint32_t ds = mlx5::size_of(each).ds;
            if (ds > mlx5::max_ds) return status::message_too_large;
            wqebbs += mlx5::wqebbs_of(ds);
        }
        if (wqebbs > in_ring) return status::message_too_large;
        if (wqebbs > mlx5::free_wqebbs(queue_.ref)) return status::again;
        for (const mlx5::work_request& each : all) {
            EXPECT_EQ(mlx5::post(queue_.ref, each), status::ok);
            const mlx5::request_size size = mlx5::size_of(each);
            const std::uint32_t first = queue_.state.reserved - mlx5::wqebbs_of(size.ds);
            EXPECT_EQ(mlx5::doorbell_of(queue_.ref, first, each, size), mlx5::doorbell_of(queue_.ref, first))
                << "it is known without the ring";
        }
        return status::ok;
    }
    void expect_same(const plain_queue& other) const {
        EXPECT_EQ(other.ring, queue_.ring);
        EXPECT_EQ(other.record, queue_.record);
        EXPECT_EQ(other.doorbell, queue_.doorbell) << "of the last request";
        EXPECT_EQ(other.state.reserved, queue_.state.reserved);
    }
    /// Room comes back, up to any WQEBB that has been reserved and not released.
    void release(plain_queue& other, std::mt19937& dice) {
        const std::uint32_t used = queue_.state.reserved - queue_.state.released;
        const std::uint32_t up_to =
            queue_.state.released + (used == 0 ? 0 : 1 + static_cast<std::uint32_t>(dice() % used));
        EXPECT_FALSE(mlx5::release_to(other.ref, queue_.state.reserved + 1)) << "not reserved yet";
        EXPECT_FALSE(mlx5::release_to(other.ref, queue_.state.released - 1)) << "released before";
        if (used == 0) return;
        EXPECT_TRUE(mlx5::release_to(other.ref, up_to));
        EXPECT_TRUE(mlx5::release_to(queue_.ref, up_to));
        EXPECT_EQ(mlx5::free_wqebbs(other.ref), in_ring - (queue_.state.reserved - up_to));
    }

  private:
    plain_queue queue_{in_ring, soon_to_wrap};
};

/// Up to `most` requests, of which one in a few batches is longer than any may be.
random_writes any_writes(std::mt19937& dice, std::size_t most) {
    static constexpr mlx5::local_range longest{0, 1000, 0};
    random_writes out(dice, dice() % (most + 1), 200);
    if (out.all.empty() || dice() % 8 != 0) return out;
    mlx5::work_request& one = out.all[dice() % out.all.size()];
    one.carries_bytes = true;
    one.first = &longest;
    return out;
}

TEST(send_scopes, a_batch_equals_its_single_requests_or_takes_nothing) {
    plain_queue together(in_ring, soon_to_wrap);
    expected_posts singly;
    std::mt19937 dice(6);
    std::array<int, 3> outcomes{};
    for (int batch = 0; batch < 20'000 && !HasFailure(); ++batch) {
        SCOPED_TRACE(batch);
        const random_writes requests = any_writes(dice, dice() % 10 == 0 ? 80 : 6);
        const status said = bench::post<thread_scope>(together.ref, requests.all.data(), as_count(requests.all.size()));
        EXPECT_EQ(said, singly.post(requests.all));
        singly.expect_same(together);
        ++outcomes[said == status::ok ? 0 : said == status::again ? 1 : 2];
        if (said == status::again || dice() % 4 == 0) singly.release(together, dice);
    }
    for (const int each : outcomes) EXPECT_GT(each, 100);
}

/// When each posts its share, one after another.
team_statuses post_as_team(const mlx5::send_queue_ref& queue, const std::vector<mlx5::work_request>& all,
                           const std::array<std::uint32_t, team_scope::threads>& shares) {
    team_statuses said{};
    team_scope::run([&](std::uint32_t rank) {
        const auto first = std::accumulate(shares.begin(), shares.begin() + rank, 0U);
        said[rank] = bench::post<team_scope>(queue, all.data() + first, shares[rank]);
    });
    return said;
}

TEST(send_scopes, the_shares_of_a_team_are_one_batch_in_the_order_of_its_ranks) {
    plain_queue team(in_ring, soon_to_wrap);
    expected_posts singly;
    std::mt19937 dice(10);
    for (int batch = 0; batch < 400 && !HasFailure(); ++batch) {
        SCOPED_TRACE(batch);
        const random_writes requests = any_writes(dice, dice() % 10 == 0 ? 80 : 12);
        std::array<std::uint32_t, team_scope::threads> shares{};
        for (std::size_t i = 0; i < requests.all.size(); ++i) ++shares[dice() % shares.size()];
        const status expected = singly.post(requests.all);
        for (const status said : post_as_team(team.ref, requests.all, shares)) EXPECT_EQ(said, expected);
        singly.expect_same(team);
        if (expected == status::again || dice() % 4 == 0) singly.release(team, dice);
    }
}

TEST(deferred_doorbell, a_deferred_doorbell_rings_with_the_next_request_or_on_command) {
    plain_queue queue(8, soon_to_wrap);
    bench::deferred_doorbell deferred;
    std::mt19937 dice(12);
    mlx5::work_request nothing;
    std::uint64_t rung = 0;
    bool waits = false;  // the doorbell of the last request
    for (int step = 0; step < 2'000 && !HasFailure(); ++step) {
        SCOPED_TRACE(step);
        const std::uint32_t last = queue.state.reserved - 1;
        const std::uint64_t doorbell = waits ? mlx5::doorbell_of(queue.ref, last) : 0;
        if (dice() % 4 == 0) {
            bench::ring(queue.ref, deferred);
            rung = waits ? doorbell : rung;
            waits = false;
        } else if (dice() % 4 == 0) {
            (void)mlx5::release_to(queue.ref, queue.state.reserved);
        } else {
            const bool room = mlx5::free_wqebbs(queue.ref) > 0;
            EXPECT_EQ(bench::post(queue.ref, nothing, deferred), room ? status::ok : status::again);
            if (!room) continue;
            rung = waits ? doorbell : rung;
            waits = true;
            EXPECT_EQ(queue.counted(), queue.state.reserved & 0xffffU) << "the record does not wait";
        }
        EXPECT_EQ(queue.doorbell, rung);
    }
}

}  // namespace
}  // namespace accel::tests
