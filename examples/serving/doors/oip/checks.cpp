// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/checks.hpp"

#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <algorithm>

namespace accel::examples::serving::oip {

error mistake_in(const named_tensor& input, const std::string& what) {
    return refusal(status::invalid_argument, "input " + in_quotes(input.name) + ": " + what);
}

result<std::size_t> find_input(const model_description& model, std::string_view name) {
    const auto found = std::ranges::find(model.inputs, name, &named_tensor::name);
    if (found != model.inputs.end()) return static_cast<std::size_t>(found - model.inputs.begin());
    return refusal(status::invalid_argument, "model " + in_quotes(model.name) + " has no input " + in_quotes(name));
}

result<std::size_t> find_output(const model_description& model, std::string_view name) {
    const auto found = std::ranges::find(model.outputs, name, &named_tensor::name);
    if (found != model.outputs.end()) return static_cast<std::size_t>(found - model.outputs.begin());
    return refusal(status::invalid_argument, "model " + in_quotes(model.name) + " has no output " + in_quotes(name));
}

result<void> check_datatype(const named_tensor& input, std::string_view name) {
    if (name == datatype_of(input)) return {};
    return mistake_in(input, "the datatype must be " + std::string{datatype_of(input)} + ", not " + in_quotes(name));
}

result<void> check_version(std::string_view model, std::string_view version) {
    if (version.empty() || version == "1") return {};
    return refusal(status::not_found, "model " + in_quotes(model) + " has no version " + in_quotes(version));
}

error other_shape(const named_tensor& input, std::span<const std::uint64_t> said) {
    std::string text;
    for (const std::uint64_t each : said.first(std::min<std::size_t>(said.size(), max_tensor_rank))) {
        if (!text.empty()) text += ',';
        text += std::to_string(each);
    }
    if (said.size() > max_tensor_rank) text += ",…";
    return mistake_in(input, "the shape must be " + shape_text(input.what) + ", not [" + text + ']');
}

error too_many_bytes(const named_tensor& input) {
    return mistake_in(input, "it is larger than the " + std::to_string(input.max_bytes) + " bytes that it may have");
}

error other_strings(const named_tensor& input, std::uint64_t elements) {
    return mistake_in(input, "it is not " + std::to_string(elements) +
                                 " elements of BYTES, each after its length (4 bytes, little-endian)");
}

error negative_dimension(const named_tensor& input) {
    return mistake_in(input, "a dimension is negative");
}

error given_twice(const named_tensor& input) {
    return mistake_in(input, "it is given twice");
}

error inputs_lacking(std::size_t given, const model_description& model) {
    return refusal(status::invalid_argument, "the request gives " + std::to_string(given) + " of the model's " +
                                                 std::to_string(model.inputs.size()) + " inputs");
}

error output_twice() {
    return refusal(status::invalid_argument, "an output is requested twice");
}

error bad_region_part() {
    return refusal(status::invalid_argument,
                   "a tensor in shared memory needs shared_memory_region (a string) and shared_memory_byte_size (a "
                   "whole number); shared_memory_offset must be a whole number as well");
}

result<void> check_bytes(const named_tensor& input, const tensor& shape, std::uint64_t bytes, const std::string& what) {
    const std::uint64_t wanted = size_bytes(shape);
    if (!input.strings && bytes != wanted)
        return mistake_in(input, what + " must be " + std::to_string(wanted) + ", not " + std::to_string(bytes));
    if (!input.strings) return {};
    if (bytes > input.max_bytes) return too_many_bytes(input);
    if (bytes < wanted * string_length_bytes) return other_strings(input, wanted);
    return {};
}

error no_classification() {
    return refusal(status::unsupported, "this door does not classify: ask for the whole output");
}

error no_sequences() {
    return refusal(status::unsupported, "this door does not support sequences of requests");
}

error bad_timeout() {
    return refusal(status::invalid_argument, "the timeout is not a whole number of microseconds up to an hour");
}

error bad_priority() {
    return refusal(status::invalid_argument, "the priority is not a whole number of 0 or more");
}

error answers_in_parts(std::string_view model) {
    return refusal(status::invalid_argument, "model " + in_quotes(model) +
                                                 " is decoupled, and answers in parts: ask for generate, "
                                                 "generate_stream or ModelStreamInfer");
}

error no_model(std::string_view name) {
    return refusal(status::not_found, "there is no model " + in_quotes(name));
}

}  // namespace accel::examples::serving::oip
