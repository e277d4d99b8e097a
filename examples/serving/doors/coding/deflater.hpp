// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/coding/content_coding.hpp"

#include <cstddef>
#include <span>
#include <string>

#include <zlib.h>

namespace accel::examples::serving::coding {

/// Compresses a body piece by piece, at zlib's quickest level.
class deflater {
  public:
    /// `to` is not identity.
    explicit deflater(content_coding to);
    deflater(const deflater&) = delete;
    deflater& operator=(const deflater&) = delete;
    ~deflater();

    /// Appends what is ready of it. False: there is no memory.
    [[nodiscard]] bool add(std::span<const std::byte> input, std::string& to) { return run(input, Z_NO_FLUSH, to); }
    /// Appends the rest.
    [[nodiscard]] bool finish(std::string& to) { return run({}, Z_FINISH, to); }

  private:
    bool run(std::span<const std::byte> input, int flush, std::string& to);

    z_stream stream_{};
    bool good_ = false;
};

}  // namespace accel::examples::serving::coding
