// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/lane.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace accel::softnic::gpu {

/// Reads from device memory. Of a message that goes on, large pieces are fetched before they are asked for:
/// one round over PCIe for each packet would be slow. What was fetched serves its message only.
class read_ahead {
  public:
    static constexpr std::size_t streams = 4;
    static constexpr std::size_t piece_bytes = 256 << 10;
    static constexpr std::size_t staging_bytes = (2 * streams + 1) * (piece_bytes + 64);

    read_ahead(lane& by, std::byte* staging);

    [[nodiscard]] bool read(std::byte* to, std::uint64_t from, std::size_t size);
    [[nodiscard]] bool read_part(std::byte* to, std::uint64_t from, std::size_t size, std::uint64_t message,
                                 std::uint64_t following);
    /// Waits until nothing is read any more.
    void settle() { static_cast<void>(lane_.wait(lane_.last())); }

  private:
    static constexpr std::size_t first_piece_bytes = 64 << 10;

    struct piece {
        std::byte* at = nullptr;
        std::uint64_t start = 0;
        std::uint64_t size = 0;
        std::uint32_t fetched_by = 0;

        [[nodiscard]] bool contains(std::uint64_t address) const { return address >= start && address - start < size; }
    };
    struct stream {
        std::uint64_t message = 0;
        std::uint64_t used = 0;
        std::array<piece, 2> pieces;
    };

    stream& stream_of(std::uint64_t message);
    /// The piece with this address; fetched now, if it is not there.
    piece& piece_at(stream& in, std::uint64_t address, std::uint64_t left);
    void fetch(piece& into, std::uint64_t from, std::uint64_t size);

    lane& lane_;
    piece plain_;
    std::array<stream, streams> streams_;
    std::uint64_t uses_ = 0;
};

}  // namespace accel::softnic::gpu
