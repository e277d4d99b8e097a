// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/load/image_stage.hpp"
#include "serving/load/settings.hpp"

#include <accel_transport/context.hpp>
#include <accel_transport/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace accel::examples::serving {

/// "auto", "synthetic", "digits" or "shape"; `auto` is `digits` for the model of this name, else `shape`.
[[nodiscard]] expectation expectation_of(std::string_view text, std::string_view model);

/// The request of one client, made once from a seed, in registered memory from which it is sent without a copy; and
/// the answer to it.
class load_input {
  public:
    [[nodiscard]] static result<load_input> make(context& ctx, const load_settings& chosen, std::uint32_t client);

    [[nodiscard]] slice request() const noexcept { return stage_ ? stage_->request() : memory_.whole(); }
    /// Makes the request anew, where the client preprocesses; else nothing.
    [[nodiscard]] result<void> prepare() const { return stage_ ? stage_->run() : result<void>{}; }
    [[nodiscard]] bool is_prepared() const noexcept { return stage_ != nullptr; }
    /// Of the request; offsets are those in its payload.
    [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
    /// The tensors of an answer of the model's size that says nothing of them: as its table has them. Else empty.
    [[nodiscard]] std::span<const tensor> undescribed(std::span<const std::byte> answer) const noexcept;
    /// True: the answer of a model with these shapes, and with the right bytes where they are known. `described`: what
    /// `completion::tensors` has read of it.
    [[nodiscard]] bool is_right(std::span<const tensor> described, std::span<const std::byte> answer) const noexcept;

  private:
    explicit load_input(const load_settings& chosen);
    [[nodiscard]] result<void> answer_for(std::span<const std::byte> source, bool raw, const load_settings& chosen);
    [[nodiscard]] bool has_shape(std::size_t index, tensor seen) const noexcept;
    [[nodiscard]] bool same_bytes(const tensor& wanted, const tensor& seen,
                                  std::span<const std::byte> answer) const noexcept;

    const model_shapes* model_;
    expectation expect_;
    region memory_;                       ///< or that of the stage
    std::unique_ptr<image_stage> stage_;  ///< null: none
    std::vector<tensor> tensors_;
    std::vector<tensor> wanted_;     ///< of the answer; offsets are those in `answer_`
    std::vector<std::byte> answer_;  ///< empty: not known
};

/// Types and shapes are equal, whatever their offsets.
[[nodiscard]] bool same_shape(const tensor& one, const tensor& other) noexcept;

}  // namespace accel::examples::serving
