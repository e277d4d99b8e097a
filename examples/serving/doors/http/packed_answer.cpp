// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/packed_answer.hpp"

#include <algorithm>
#include <span>

namespace accel::examples::serving::doors {
namespace {

constexpr std::size_t piece_bytes = std::size_t{128} << 10;  // takes a millisecond or two

}  // namespace

std::span<const std::byte> packed_answer::piece(const oip::infer_answer& body) const {
    const auto whole = index_ == 0 ? std::as_bytes(std::span{body.head}) : body.tensors[index_ - 1];
    return whole.subspan(offset_, std::min(piece_bytes, whole.size() - offset_));
}

bool packed_answer::step(const oip::infer_answer& body) {
    const auto next = piece(body);
    good_ = good_ && packer_.add(next, text_);
    offset_ += next.size();
    if (!next.empty()) return good_;
    offset_ = 0;
    if (++index_ <= body.tensors.size()) return good_;
    good_ = good_ && packer_.finish(text_);
    return false;
}

bool packed_answer::is_worth_it(const oip::infer_answer& body) const {
    return good_ && text_.size() < body.head.size() + body.binary_bytes;
}

}  // namespace accel::examples::serving::doors
