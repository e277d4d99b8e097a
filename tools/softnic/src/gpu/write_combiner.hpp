// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/lane.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::softnic::gpu {

/// Writes to device memory, in order. Packets that follow one another become one job while the lane is busy
/// with those before: a long message moves in large pieces, a short one at once.
class write_combiner {
  public:
    static constexpr std::size_t buffers = 4;
    static constexpr std::size_t buffer_bytes = 256 << 10;
    static constexpr std::size_t staging_bytes = buffers * (buffer_bytes + 64);

    write_combiner(lane& by, std::byte* staging) : lane_(by), staging_(staging) {}

    [[nodiscard]] bool write(std::uint64_t to, const std::byte* from, std::size_t size);
    /// Waits until all of it is there.
    [[nodiscard]] bool flush();
    [[nodiscard]] bool pending() const { return size_ != 0 || !lane_.idle(); }
    /// The job that what was written last is in, or will be.
    [[nodiscard]] std::uint32_t last() const { return lane_.last() + (size_ != 0 ? 1 : 0); }
    /// Begins with what it has kept.
    void submit();

  private:
    static constexpr std::size_t enough_bytes = 64 << 10;

    [[nodiscard]] bool open(std::uint64_t to);
    [[nodiscard]] std::byte* buffer() const { return staging_ + current_ * (buffer_bytes + 64) + (start_ & 15); }

    lane& lane_;
    std::byte* staging_;
    std::size_t current_ = 0;
    std::uint64_t start_ = 0;
    std::size_t size_ = 0;  ///< of the open piece; 0: there is none
    std::array<std::uint32_t, buffers> used_by_{};
};

}  // namespace accel::softnic::gpu
