// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "serving/doors/oip/element_reader.hpp"
#include "serving/doors/oip/model_description.hpp"
#include "serving/doors/oip/output_choice.hpp"
#include "serving/doors/oip/region_part.hpp"
#include "serving/doors/oip/request_payload.hpp"

#include <accel_transport/status.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accel::examples::serving::oip {

/// How an input's elements stand in a request.
enum class input_form : std::uint8_t {
    binary,    ///< in the binary section
    elements,  ///< in JSON, flat or nested
    alone,     ///< in JSON, the only one, without brackets
    padded,    ///< in JSON, a string, and zeros behind it
};

/// Where the elements of one input come from.
struct input_source {
    std::size_t index = 0;  ///< in `model_description::inputs`
    input_form form = input_form::binary;
    tensor shape{};                 ///< as the request says it
    std::string_view text{};        ///< in JSON, not yet read: a part of the request's text
    std::vector<std::byte> data{};  ///< the elements, once `json_inputs` has read them
};

/// A request that fits its model: each input is given once, with the model's type and a shape and a number of bytes
/// that it takes.
struct infer_request {
    std::string id;
    std::vector<input_source> inputs;   ///< in the request's order, which is that of the binary section
    std::vector<region_input> regions;  ///< inputs that lie in memory of the client, each of the right size
    std::vector<output_choice> outputs;
    std::chrono::nanoseconds timeout{};  ///< 0: none was asked for
    request_payload payload;             ///< once `json_inputs` is done
};

/// Reads the inputs that stand in JSON, a piece at a time, because others wait meanwhile.
class json_inputs {
  public:
    /// Both have to outlive it, and the request's text as well.
    json_inputs(infer_request& request, const model_description& model) : request_(request), model_(model) {}

    /// Goes on for about so many characters. True: more follow. `invalid_argument`: a value is not what its tensor
    /// holds.
    [[nodiscard]] result<bool> step(std::size_t characters);

  private:
    void begin(const input_source& next);
    [[nodiscard]] result<void> end(input_source& done);

    infer_request& request_;
    const model_description& model_;
    std::size_t next_ = 0;  ///< in `request_.inputs`
    std::optional<element_reader> reader_;
};

/// Memory that `json_inputs` takes for a request, at most.
[[nodiscard]] std::uint64_t json_data_bytes(const infer_request& request, const model_description& model) noexcept;

/// All of it at once.
[[nodiscard]] result<void> read_json_inputs(infer_request& request, const model_description& model);

/// Reads the JSON head of a request, behind which `binary_bytes` of tensors follow, but not the elements in it: the
/// result has views of `head`. Fails with `invalid_argument` and a sentence, or `unsupported`: sequences.
[[nodiscard]] result<infer_request> read_infer_head(std::string_view head, std::uint64_t binary_bytes,
                                                    const model_description& model);

/// The raw binary request: no JSON at all, the body is the only input, of which one dimension may be variable. BYTES:
/// the body is the elements with their lengths. `invalid_argument`: the model has several, or another size.
[[nodiscard]] result<infer_request> raw_infer_request(std::uint64_t binary_bytes, const model_description& model);

/// Where the binary section goes in a request's payload, in its order. `room` holds `payload.bytes()`.
[[nodiscard]] std::vector<std::span<std::byte>> binary_places(const infer_request& request, std::span<std::byte> room);

/// Writes the inputs that came in JSON to their places, and zeros between the tensors.
void write_json_inputs(const infer_request& request, std::span<std::byte> room);

}  // namespace accel::examples::serving::oip
