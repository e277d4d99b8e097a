// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/coding/deflater.hpp"
#include "serving/doors/oip/infer_answer.hpp"

#include <cstddef>
#include <string>

namespace accel::examples::serving::doors {

/// Compresses an answer a piece at a time, because a loop's other clients wait meanwhile.
class packed_answer {
  public:
    explicit packed_answer(coding::content_coding how) : how_(how), packer_(how) {}

    /// The next piece of `body`, which is the same each time. False: that was all.
    [[nodiscard]] bool step(const oip::infer_answer& body);
    /// False: it did not become shorter, or there was no memory.
    [[nodiscard]] bool is_worth_it(const oip::infer_answer& body) const;
    [[nodiscard]] coding::content_coding how() const { return how_; }
    [[nodiscard]] std::string& text() { return text_; }

  private:
    [[nodiscard]] std::span<const std::byte> piece(const oip::infer_answer& body) const;

    coding::content_coding how_;
    coding::deflater packer_;
    std::string text_;
    std::size_t index_ = 0;   ///< 0: the JSON; then the tensors
    std::size_t offset_ = 0;  ///< in it
    bool good_ = true;
};

}  // namespace accel::examples::serving::doors
