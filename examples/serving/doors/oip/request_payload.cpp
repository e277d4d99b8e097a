// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/request_payload.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/strings.hpp"

#include <algorithm>

namespace accel::examples::serving::oip {

void request_payload::set(const named_tensor& input, std::size_t index, const tensor& shape, std::uint64_t bytes) {
    tensors_[index] = input.strings ? serialized_strings(bytes) : shape;
    strings_[index] = input.strings ? size_bytes(shape) : 0;
}

void request_payload::place() noexcept {
    bytes_ = 0;
    for (tensor& each : tensors_) {
        each.offset = next_place(bytes_);
        bytes_ = each.offset + size_bytes(each);
    }
}

bool request_payload::has_strings() const noexcept {
    return std::ranges::any_of(strings_, [](std::uint64_t count) { return count > 0; });
}

result<void> request_payload::check_strings(const model_description& model, std::span<const std::byte> room) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i)
        if (strings_[i] > 0 && count_strings(bytes_of(tensors_[i], room)) != strings_[i])
            return other_strings(model.inputs[i], strings_[i]);
    return {};
}

void request_payload::clear_gaps(std::span<std::byte> room) const {
    std::size_t end = 0;
    for (const tensor& each : tensors_) {
        std::ranges::fill(room.subspan(end, each.offset - end), std::byte{0});
        end = each.offset + size_bytes(each);
    }
}

}  // namespace accel::examples::serving::oip
