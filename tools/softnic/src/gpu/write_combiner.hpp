// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/lane.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::softnic::gpu {

/// Writes to device memory. Bytes that follow one another become one job while the lane is busy with those before: a
/// long message moves in large pieces, a short one at once. Several messages may arrive beside each other, each with a
/// piece of its own.
class write_combiner {
  public:
    static constexpr std::size_t buffers = 32;
    static constexpr std::size_t buffer_bytes = 64 << 10;
    static constexpr std::size_t staging_bytes = buffers * (buffer_bytes + 64);

    write_combiner(lane& by, std::byte* staging) : lane_(by), staging_(staging) {}

    /// Behind all writes before it.
    [[nodiscard]] bool write(std::uint64_t to, const std::byte* from, std::size_t size);
    /// In any order with other loose ones that come before the next write().
    [[nodiscard]] bool write_loose(std::uint64_t to, const std::byte* from, std::size_t size);
    /// False: what is under way or kept would hold up others, or leaves no room.
    [[nodiscard]] bool has_room();
    /// Waits until all of it is there.
    [[nodiscard]] bool flush();
    [[nodiscard]] bool pending() const { return count_ != 0 || !lane_.idle(); }
    /// The job that what was written last is in, or will be.
    [[nodiscard]] std::uint32_t last() const { return last_; }
    /// Begins with what it has kept. Nobody else may submit jobs to the lane while something is kept.
    void submit();

  private:
    /// One that grows. They are submitted in the order in which they were opened, so each knows its job's number.
    struct piece {
        std::uint64_t start = 0;
        std::size_t size = 0;
        std::size_t buffer = 0;
        bool loose = false;
    };
    static constexpr std::size_t most_open = buffers / 2;
    static constexpr std::size_t enough_bytes = 192 << 10;  ///< that PCIe takes some microseconds for

    /// As much as fits into the piece.
    std::size_t append(std::size_t at, const std::byte* from, std::size_t size);
    void submit(const job& what);
    /// At the end.
    [[nodiscard]] bool open(std::uint64_t to, bool loose);
    void submit_oldest();
    [[nodiscard]] piece& kept(std::size_t at) { return open_[(first_ + at) % most_open]; }
    [[nodiscard]] std::byte* buffer_of(const piece& of) const {
        return staging_ + of.buffer * (buffer_bytes + 64) + (of.start & 15);
    }

    lane& lane_;
    std::byte* staging_;
    std::array<piece, most_open> open_{};  ///< a ring, from first_ on
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::size_t next_buffer_ = 0;
    std::uint32_t last_ = 0;
    std::array<std::uint32_t, buffers> used_by_{};
    std::array<std::uint32_t, lane_depth> bytes_of_{};  ///< of each job
    std::uint32_t counted_ = 0;                         ///< the last job whose bytes are out of bytes_
    std::size_t bytes_ = 0;                             ///< kept or under way
};

}  // namespace accel::softnic::gpu
