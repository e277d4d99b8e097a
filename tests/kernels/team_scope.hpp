// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/device/scope.hpp>

#include <array>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

namespace accel::tests {

/// Threads of the host in the place of a warp's lanes: their ranks add up and meet as those do.
struct team_scope {
    static constexpr std::uint32_t threads = 4;
    inline static thread_local std::uint32_t own_rank = 0;
    inline static std::array<std::uint64_t, threads> told{};
    inline static std::barrier<> meeting{threads};

    static std::uint32_t rank() noexcept { return own_rank; }
    static void meet() noexcept { meeting.arrive_and_wait(); }
    static std::uint64_t of_first(std::uint64_t value) noexcept {
        if (own_rank == 0) told[0] = value;
        meet();
        const std::uint64_t out = told[0];
        meet();
        return out;
    }
    /// Each of a team does `work(rank)`.
    template <class Work>
    static void run(const Work& work) {
        std::vector<std::thread> team;
        for (std::uint32_t rank = 0; rank < threads; ++rank) {
            team.emplace_back([&work, rank] {
                own_rank = rank;
                work(rank);
            });
        }
        for (std::thread& each : team) each.join();
    }
};

}  // namespace accel::tests

template <>
inline constexpr bool accel::device::detail::is_scope<accel::tests::team_scope> = true;
