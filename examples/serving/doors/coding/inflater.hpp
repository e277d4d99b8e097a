// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/coding/content_coding.hpp"
#include "serving/doors/counting/memory_budget.hpp"

#include <accel_transport/status.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <zlib.h>

namespace accel::examples::serving::coding {

using doors::memory_share;

/// Reads a compressed body piece by piece. It takes 40 KiB, however long the body is.
class inflater {
  public:
    enum class progress : std::uint8_t {
        goes_on,  ///< it wants more input, or more room
        whole,    ///< this was the end; what is left of the input is not part of it
        broken,   ///< this is not what it should be, and never will be
    };

    /// `from` is not identity.
    explicit inflater(content_coding from);
    inflater(const inflater&) = delete;
    inflater& operator=(const inflater&) = delete;
    ~inflater();

    /// Goes on until either ends, and takes from both what was used.
    [[nodiscard]] progress step(std::span<const std::byte>& input, std::span<std::byte>& output);

  private:
    z_stream stream_{};
    bool good_ = false;
};

/// A whole message, whose bytes lie in `pieces`. Its memory is taken from `memory` before it is used.
/// `message_too_large`: it has more than `limit` bytes; it takes no more memory than that before this is known.
/// `overloaded`: not enough memory now. `invalid_argument`: it is not valid, is cut, or other bytes follow.
[[nodiscard]] result<std::string> inflate_all(content_coding from, std::span<const std::span<const std::byte>> pieces,
                                              std::size_t limit, memory_share& memory);

}  // namespace accel::examples::serving::coding
