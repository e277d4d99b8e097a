// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "digits/dataset.hpp"

#include <accel_transport/context.hpp>

#include <cstddef>
#include <string_view>
#include <vector>

namespace accel::examples::digits {

/// What a client sends: raw frames, which the server preprocesses, or ready tensors.
enum class input_form : unsigned char { raw, tensor };

[[nodiscard]] std::string_view to_string(input_form form) noexcept;
[[nodiscard]] std::size_t request_bytes(input_form form) noexcept;

/// Requests of one client, drawn ahead into registered memory, from which they are sent without a copy.
class digit_inputs {
  public:
    /// `count` test images from `first` on, wrapping around at the end of the data set.
    [[nodiscard]] static result<digit_inputs> make(context& ctx, input_form form, std::size_t first, std::size_t count);

    [[nodiscard]] std::size_t size() const noexcept { return labels_.size(); }
    [[nodiscard]] slice request(std::size_t i) const noexcept { return requests_[i]; }
    [[nodiscard]] int label(std::size_t i) const noexcept { return labels_[i]; }

  private:
    explicit digit_inputs(region memory) noexcept : memory_(std::move(memory)) {}

    region memory_;
    std::vector<slice> requests_;
    std::vector<int> labels_;
};

}  // namespace accel::examples::digits
