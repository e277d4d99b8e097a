// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "staging/accelerator.hpp"

#include <algorithm>
#include <cstddef>

namespace accel::core {

/// A copy of any length, given to a stream piece by piece, so that other copies go in between and one of high
/// priority waits for few pieces.
class long_copy {
  public:
    long_copy() = default;
    long_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept
        : to_(to), from_(from), left_(bytes), short_(bytes <= device_stream::piece_bytes) {}

    /// Gives the stream pieces, while it has fewer than `most` under way. True: it has all of them.
    [[nodiscard]] bool feed(device_stream& stream, unsigned most = device_stream::max_pieces) noexcept {
        if (left_ == 0) return true;
        if (short_) {
            stream.copy(to_, from_, left_);
            left_ = 0;
            return true;
        }
        for (unsigned under_way = stream.pieces_under_way(); left_ > 0 && under_way < most; ++under_way) {
            const std::size_t piece = std::min(left_, device_stream::piece_bytes);
            stream.copy_piece(to_, from_, piece);
            to_ += piece;
            from_ += piece;
            left_ -= piece;
        }
        return left_ == 0;
    }

  private:
    std::byte* to_ = nullptr;
    const std::byte* from_ = nullptr;
    std::size_t left_ = 0;  ///< bytes not given to a stream yet
    bool short_ = false;
};

}  // namespace accel::core
