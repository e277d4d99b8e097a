// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <accel_transport/detail/mlx5/fences.hpp>
#include <accel_transport/device/detail/service/layout.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

namespace accel::gpu {

/// Maps a queue pair's number to its session, in memory that device code reads: a hash table with linear
/// probing, at most half full. One thread at a time puts numbers while another may look up; numbers are
/// dropped while nobody looks up.
class number_table {
  public:
    [[nodiscard]] static std::uint32_t size_for(std::uint32_t sessions) noexcept {
        return std::bit_ceil(sessions * 2 + 1);
    }
    number_table() noexcept = default;
    /// A power of two of entries, all of which become free.
    explicit number_table(std::span<device::detail::session_number> entries) noexcept : entries_(entries) {
        std::fill(entries.begin(), entries.end(), free);
    }

    void put(std::uint32_t queue_pair, std::uint32_t session) noexcept {
        std::size_t i = queue_pair & mask();
        while (!is_free(i)) i = (i + 1) & mask();
        mlx5::store_whole(&entries_[i], device::detail::session_number{queue_pair, session});
    }
    /// One that is there. An entry behind the gap moves into it if it was put past it.
    void drop(std::uint32_t queue_pair) noexcept {
        std::size_t gap = queue_pair & mask();
        while (entries_[gap].queue_pair != queue_pair) gap = (gap + 1) & mask();
        for (std::size_t i = (gap + 1) & mask(); !is_free(i); i = (i + 1) & mask()) {
            const std::size_t moved = (i - entries_[i].queue_pair) & mask();
            if (moved < ((i - gap) & mask())) continue;
            mlx5::store_whole(&entries_[gap], entries_[i]);
            gap = i;
        }
        mlx5::store_whole(&entries_[gap], free);
    }

  private:
    static constexpr device::detail::session_number free{0, device::detail::no_session};
    [[nodiscard]] std::size_t mask() const noexcept { return entries_.size() - 1; }
    [[nodiscard]] bool is_free(std::size_t i) const noexcept {
        return entries_[i].session == device::detail::no_session;
    }
    std::span<device::detail::session_number> entries_;
};

}  // namespace accel::gpu
