// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/lane.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::softnic::gpu {

/// The last pieces of messages, on their way to device memory one by one. Those that are there at push() go together:
/// the server finds all with one look.
class last_pieces {
  public:
    static constexpr std::size_t largest_bytes = 4096;
    static constexpr std::size_t places = 8;
    static constexpr std::size_t staging_bytes = places * (largest_bytes + 64);

    last_pieces(lane& by, std::byte* staging) : lane_(by), staging_(staging) {}

    /// Never waits. False: there is no room, or the piece is too large.
    [[nodiscard]] bool write(std::uint64_t to, const std::byte* from, std::size_t size);
    void push() { lane_.publish(); }

  private:
    lane& lane_;
    std::byte* staging_;
};

}  // namespace accel::softnic::gpu
