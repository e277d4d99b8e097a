// SPDX-License-Identifier: Apache-2.0
#include "gpu/last_pieces.hpp"

#include <cstring>

namespace accel::softnic::gpu {

bool last_pieces::write(std::uint64_t to, const std::byte* from, std::size_t size) {
    if (lane_.broken() || size > largest_bytes || lane_.outstanding() >= places) return false;
    job piece;
    piece.size = static_cast<std::uint32_t>(size);
    piece.memory = to;
    if (size <= inline_bytes) {
        piece.payload = from;
    } else {
        std::byte* const at = staging_ + (lane_.last() + 1) % places * (largest_bytes + 64) + (to & 15);
        std::memcpy(at, from, size);
        piece.host = reinterpret_cast<std::uint64_t>(at);
    }
    lane_.prepare(piece);
    return true;
}

}  // namespace accel::softnic::gpu
