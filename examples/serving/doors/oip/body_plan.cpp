// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/body_plan.hpp"

#include "serving/doors/oip/json_split.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace accel::examples::serving::oip {
namespace {

constexpr std::uint64_t json_number_bytes = 32;  // with its comma and blanks

}  // namespace

std::optional<std::uint64_t> number_of(std::string_view text) noexcept {
    std::uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
    return value;
}

result<body_plan> plan_body(std::uint64_t body_bytes, std::optional<std::string_view> header_length) {
    if (!header_length) return body_plan{body_bytes, 0};
    const auto json = number_of(*header_length);
    if (!json || *json > body_bytes)
        return refusal(status::invalid_argument,
                       "Inference-Header-Content-Length is not a number up to the body's length");
    return body_plan{*json, body_bytes - *json};
}

result<void> check_body(const body_plan& plan, const model_description& model, std::uint64_t max_json) {
    const std::uint64_t json = json_input_bytes(model, max_json);
    if (plan.json_bytes > json)
        return refusal(status::message_too_large,
                       "the JSON is longer than the " + std::to_string(json) + " bytes that this model needs");
    const std::uint64_t tensors = binary_input_bytes(model);
    if (plan.is_raw() && plan.binary_bytes > tensors)
        return refusal(status::message_too_large,
                       "the tensors are longer than the model's " + std::to_string(tensors) + " bytes");
    return {};
}

std::uint64_t binary_input_bytes(const model_description& model) noexcept {
    std::uint64_t sum = 0;
    for (const named_tensor& each : model.inputs) sum += each.max_bytes;
    return sum;
}

std::uint64_t json_input_bytes(const model_description& model, std::uint64_t limit) noexcept {
    std::uint64_t numbers = 0;
    for (const named_tensor& each : model.inputs) numbers += each.max_bytes * 8 / each.what.type.bits;
    return std::min(limit, max_json_frame + numbers * json_number_bytes);
}

}  // namespace accel::examples::serving::oip
