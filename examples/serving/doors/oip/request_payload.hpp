// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/model_description.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accel::examples::serving::oip {

/// What a request's payload consists of: its own shapes, which the model's description may leave open.
class request_payload {
  public:
    request_payload() = default;
    explicit request_payload(const model_description& model)
        : tensors_(model.inputs.size()), strings_(tensors_.size()) {}

    /// The input of this place in the model's list has this shape, and so many bytes.
    void set(const named_tensor& input, std::size_t index, const tensor& shape, std::uint64_t bytes);
    /// Places them as `place` does, once each is set.
    void place() noexcept;

    /// As a server is told: BYTES as UINT8, of rank 1.
    [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool has_strings() const noexcept;
    /// The elements of this input within `room`, which has `bytes()`.
    [[nodiscard]] std::span<std::byte> of(std::size_t index, std::span<std::byte> room) const {
        return bytes_of(tensors_[index], room);
    }
    /// Says whether each input of BYTES holds as many elements as its shape, and nothing else. `invalid_argument`.
    [[nodiscard]] result<void> check_strings(const model_description& model, std::span<const std::byte> room) const;
    /// Writes zeros between the tensors: what lies there in a slot is another request's, until somebody clears it.
    void clear_gaps(std::span<std::byte> room) const;

  private:
    std::vector<tensor> tensors_;
    std::vector<std::uint64_t> strings_;  ///< elements of BYTES; 0: it is of another type
    std::size_t bytes_ = 0;
};

}  // namespace accel::examples::serving::oip
