// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/models/table.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace accel::examples::serving {

/// Why a request is refused. Its sentence is cut where it is too long; nothing is allocated.
class refusal {
  public:
    refusal() = default;
    [[nodiscard]] status code() const noexcept { return code_; }
    [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), length_}; }
    void set(status code, std::string_view text) noexcept;

  private:
    status code_ = status::ok;
    std::size_t length_ = 0;
    std::array<char, 240> text_;
};

/// What a request has been found to be.
struct request_form {
    bool raw = false;        ///< an image, else the model's input tensors
    std::size_t offset = 0;  ///< of its bytes in the payload
    std::size_t length = 0;
};

/// The parts of a request that decide whether a model takes it.
struct request_parts {
    status described = status::ok;    ///< what `exchange::tensors` said
    std::span<const tensor> tensors;  ///< likewise; empty if it failed
    const std::byte* payload = nullptr;
    std::size_t response_room = 0;
};

/// Which requests one model takes: its input tensors, or one raw image of bytes where the model takes images. Any
/// number of threads may ask it at once.
class request_check {
  public:
    /// `shapes` must outlive it.
    explicit request_check(const model_shapes& shapes);

    /// False: `why` has the status and a sentence.
    [[nodiscard]] bool look(const request_parts& request, request_form& out, refusal& why) const noexcept;
    /// What is described of each answer, offsets included; of open outputs the longest.
    [[nodiscard]] std::span<const tensor> outputs() const noexcept { return outputs_; }
    [[nodiscard]] std::size_t input_bytes() const noexcept { return input_bytes_; }
    [[nodiscard]] std::size_t output_bytes() const noexcept { return output_bytes_; }

  private:
    [[nodiscard]] bool is_described(const request_parts& request, refusal& why) const noexcept;
    [[nodiscard]] bool has_count(std::size_t count, bool raw, refusal& why) const noexcept;
    [[nodiscard]] bool is_like(const tensor& given, const tensor& wanted, std::size_t index,
                               refusal& why) const noexcept;
    [[nodiscard]] bool lies_rightly(const request_parts& request, refusal& why) const noexcept;
    [[nodiscard]] bool has_room(const request_parts& request, refusal& why) const noexcept;

    const model_shapes& shapes_;
    bool images_ = false;
    tensor image_;                 ///< a raw one, where the model takes them
    std::vector<tensor> inputs_;   ///< at their offsets from the first one
    std::vector<tensor> outputs_;  ///< likewise
    std::size_t input_bytes_ = 0;
    std::size_t output_bytes_ = 0;
};

}  // namespace accel::examples::serving
