// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/element_writer.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"

#include <accel_transport/status.hpp>
#include <accel_transport/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

/// A response: JSON, and behind it tensors from where they lie.
struct infer_answer {
    std::string head;
    std::vector<std::span<const std::byte>> tensors;  ///< parts of the payload, in the order of the outputs
    std::uint64_t binary_bytes = 0;                   ///< of `tensors` together
};

/// Largest output that is written in JSON; others are asked for as binary data.
inline constexpr std::size_t max_json_output_bytes = std::size_t{16} << 20;

/// What the backend says of its payload, or, where it says nothing (`described` is empty), what the model's description
/// says: a model's only output is the whole payload where the description leaves its size open. `protocol_error`: it is
/// not what the description promises; BYTES are as many elements as their shape has.
[[nodiscard]] result<std::vector<tensor>> answered_tensors(const model_description& model,
                                                           std::span<const tensor> described,
                                                           std::span<const std::byte> payload);
/// How an output is shown to a client: the shape of BYTES follows from their number, and their type is UINT8 here.
[[nodiscard]] result<tensor> shown_tensor(const named_tensor& declared, const tensor& said,
                                          std::span<const std::byte> payload);

/// Writes an answer a piece at a time, because others wait meanwhile.
class answer_maker {
  public:
    /// `outputs` as `answered_tensors` gave them, all within `payload`. All but these have to outlive it.
    answer_maker(const model_description& model, std::string_view id, std::span<const output_choice> chosen,
                 std::vector<tensor> outputs, std::span<const std::byte> payload);

    /// Goes on for about so many characters of JSON. True: more follow. `invalid_argument`: an output cannot be written
    /// in JSON.
    [[nodiscard]] result<bool> step(std::size_t characters);
    [[nodiscard]] infer_answer& made() noexcept { return made_; }
    /// The longest text that the elements in JSON become.
    [[nodiscard]] std::uint64_t longest_json() const noexcept;

  private:
    [[nodiscard]] result<void> begin_output(const output_choice& one);
    [[nodiscard]] result<void> begin_elements(const named_tensor& declared, const tensor& what);

    const model_description& model_;
    std::span<const output_choice> chosen_;
    std::vector<tensor> outputs_;
    std::span<const std::byte> payload_;
    infer_answer made_;
    std::size_t next_ = 0;  ///< in `chosen_`
    std::optional<element_writer> writer_;
};

/// All of it at once.
[[nodiscard]] result<infer_answer> make_answer(const model_description& model, std::string_view id,
                                               std::span<const output_choice> chosen, std::span<const tensor> outputs,
                                               std::span<const std::byte> payload);

}  // namespace accel::examples::serving::oip
