// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/infer_head.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/json_split.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/request_fields.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

error mistake(std::string sentence) {
    return refusal(status::invalid_argument, std::move(sentence));
}

result<void> check_type(const json& from, const named_tensor& input) {
    const json* type = member(from, "datatype");
    if (type == nullptr || !type->is_string()) return mistake_in(input, "its datatype is missing");
    return check_datatype(input, type->get_ref<const std::string&>());
}

result<tensor> read_shape(const json& from, const named_tensor& input) {
    const json* shape = member(from, "shape");
    if (shape == nullptr || !shape->is_array()) return mistake_in(input, "its shape is missing");
    std::vector<std::uint64_t> said;
    for (const json& each : *shape) {
        if (each.is_number_integer() && !each.is_number_unsigned()) return negative_dimension(input);
        if (!each.is_number_unsigned()) return mistake_in(input, "a dimension is not a whole number below 2^64");
        said.push_back(each.get<std::uint64_t>());
    }
    return with_shape(input, said);
}

/// The bytes of this input in the binary section; nothing: it has none there.
result<std::optional<std::uint64_t>> binary_size(const json& from, const named_tensor& input, const tensor& shape) {
    const json* parameters = member(from, "parameters");
    const json* bytes = parameters == nullptr ? nullptr : member(*parameters, "binary_data_size");
    if (bytes == nullptr) return std::optional<std::uint64_t>{};
    // Another number than a whole one fits nothing.
    const auto said = bytes->is_number_unsigned() ? bytes->get<std::uint64_t>() : ~std::uint64_t{0};
    if (auto good = check_bytes(input, shape, said, "binary_data_size"); !good) return good.error();
    return std::optional{said};
}

/// Its place in a region, which has to be as long as the tensor; nothing: it lies in none.
result<std::optional<region_part>> region_of(const json& from, const named_tensor& input, const tensor& shape) {
    const json* parameters = member(from, "parameters");
    if (parameters == nullptr) return std::optional<region_part>{};
    auto out = read_region_part(*parameters);
    if (!out) return out.error();
    if (!*out) return out;
    if (auto good = check_bytes(input, shape, (*out)->bytes, "shared_memory_byte_size"); !good) return good.error();
    return out;
}

/// Its name, type and shape.
result<input_source> read_source(const json& from, const model_description& model) {
    const json* name = member(from, "name");
    if (name == nullptr || !name->is_string()) return mistake("an input has no name");
    const auto found = find_input(model, name->get_ref<const std::string&>());
    if (!found) return found.error();
    const named_tensor& input = model.inputs[found.value()];
    if (auto good = check_type(from, input); !good) return good.error();
    const auto shape = read_shape(from, input);
    if (!shape) return shape.error();
    return input_source{.index = found.value(), .shape = shape.value()};
}

bool is_given(const infer_request& so_far, std::size_t index) {
    return std::ranges::find(so_far.inputs, index, &input_source::index) != so_far.inputs.end() ||
           std::ranges::find(so_far.regions, index, &region_input::index) != so_far.regions.end();
}

/// `data`: null where the input has none. Adds to `binary_bytes` what lies in the binary section.
result<void> add_input(const json& from, const held_value* data, const model_description& model, infer_request& to,
                       std::uint64_t& binary_bytes) {
    auto one = read_source(from, model);
    if (!one) return one.error();
    const named_tensor& input = model.inputs[one->index];
    if (is_given(to, one->index)) return given_twice(input);
    auto region = region_of(from, input, one->shape);
    if (!region) return region.error();
    const auto binary = binary_size(from, input, one->shape);
    if (!binary) return binary.error();
    const int ways = (binary.value() ? 1 : 0) + (*region ? 1 : 0) + (data != nullptr ? 1 : 0);
    if (ways > 1) return mistake_in(input, "it has more than one of data, binary_data_size and shared_memory_region");
    if (ways == 0) return mistake_in(input, "it has neither data nor a binary_data_size");
    if (*region) {
        to.payload.set(input, one->index, one->shape, (*region)->bytes);
        to.regions.push_back({one->index, **std::move(region)});
        return {};
    }
    if (data != nullptr) {
        one->form = input_form::elements;
        one->text = data->text;
    } else {
        to.payload.set(input, one->index, one->shape, *binary.value());
        binary_bytes += *binary.value();
    }
    to.inputs.push_back(std::move(one).value());
    return {};
}

result<void> read_inputs(const split_object& document, const model_description& model, infer_request& to,
                         std::uint64_t binary_bytes) {
    const json* list = member(document.tree, "inputs");
    if (list == nullptr || !list->is_array()) return mistake("the request has no list of inputs");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < list->size(); ++i) {
        const json& each = (*list)[i];
        const held_value* data = member(each, "data") == nullptr ? nullptr : find_held(document, "data", i);
        if (auto added = add_input(each, data, model, to, sum); !added) return added;
    }
    const std::size_t given = to.inputs.size() + to.regions.size();
    if (given != model.inputs.size()) return inputs_lacking(given, model);
    if (sum == binary_bytes) return {};
    return mistake("the inputs have " + std::to_string(sum) + " bytes of binary data, but the body has " +
                   std::to_string(binary_bytes));
}

/// BYTES say themselves how many they are, but nobody has read them yet: only a fixed shape does for them.
result<tensor> raw_shape(const named_tensor& input, std::uint64_t bytes) {
    const bool open = variable_dimensions(input.what) > 0;
    if (input.strings && open) return mistake_in(input, "a raw binary request with BYTES needs a shape without -1");
    if (!open) return input.what;
    const std::uint64_t each = input.what.type.bits / 8U;
    if (bytes % each != 0) return mistake_in(input, "the body is not a whole number of its elements");
    return with_elements(input, bytes / each);
}

}  // namespace

result<infer_request> read_infer_head(std::string_view head, std::uint64_t binary_bytes,
                                      const model_description& model) {
    const auto document = split_inference(head);
    if (!document) return document.error();
    const json& tree = document.value().tree;
    infer_request out;
    out.payload = request_payload{model};
    auto id = read_id(tree);
    if (!id) return id.error();
    const auto timeout = read_parameters(tree);
    if (!timeout) return timeout.error();
    auto outputs = chosen_outputs(tree, model);
    if (!outputs) return outputs.error();
    if (auto read = read_inputs(document.value(), model, out, binary_bytes); !read) return read.error();
    out.id = std::move(id).value();
    out.timeout = timeout.value();
    out.outputs = std::move(outputs).value();
    return out;
}

result<infer_request> raw_infer_request(std::uint64_t binary_bytes, const model_description& model) {
    if (model.inputs.size() != 1) return mistake("a raw binary request needs a model with exactly one input");
    const named_tensor& input = model.inputs.front();
    infer_request out;
    out.payload = request_payload{model};
    const auto shape = raw_shape(input, binary_bytes);
    if (!shape) return shape.error();
    if (auto good = check_bytes(input, shape.value(), binary_bytes, "the body's length"); !good) return good.error();
    out.payload.set(input, 0, shape.value(), binary_bytes);
    out.inputs.push_back({.index = 0, .shape = shape.value()});
    for (std::size_t i = 0; i < model.outputs.size(); ++i) out.outputs.push_back({i, false});
    return out;
}

std::vector<std::span<std::byte>> binary_places(const infer_request& request, std::span<std::byte> room) {
    std::vector<std::span<std::byte>> out;
    for (const input_source& each : request.inputs)
        if (each.form == input_form::binary) out.push_back(request.payload.of(each.index, room));
    return out;
}

void write_json_inputs(const infer_request& request, std::span<std::byte> room) {
    request.payload.clear_gaps(room);
    for (const input_source& each : request.inputs)
        if (each.form != input_form::binary) std::ranges::copy(each.data, request.payload.of(each.index, room).begin());
}

}  // namespace accel::examples::serving::oip
