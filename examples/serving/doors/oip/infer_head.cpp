// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/infer_head.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/json_data.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/request_fields.hpp"

#include <algorithm>
#include <cstring>
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
    if (type == nullptr || !type->is_string()) return mistake_in(input, "there is no datatype");
    return check_datatype(input, type->get_ref<const std::string&>());
}

bool same_shape(const json& shape, const tensor& what) {
    if (shape.size() != what.rank) return false;
    for (std::uint32_t i = 0; i < what.rank; ++i)
        if (shape[i].get<std::uint64_t>() != what.shape[i]) return false;
    return true;
}

result<void> check_shape(const json& from, const named_tensor& input) {
    const json* shape = member(from, "shape");
    if (shape == nullptr || !shape->is_array()) return mistake_in(input, "there is no shape");
    for (const json& each : *shape) {
        if (each.is_number_integer() && !each.is_number_unsigned()) return negative_dimension(input);
        if (!each.is_number_unsigned()) return mistake_in(input, "a dimension is no whole number below 2^64");
    }
    if (same_shape(*shape, input.what)) return {};
    return other_shape(input);
}

/// The bytes of this input in the binary section; nothing: it has none there.
result<bool> is_binary(const json& from, const named_tensor& input) {
    const json* parameters = member(from, "parameters");
    if (parameters == nullptr) return false;
    const json* bytes = member(*parameters, "binary_data_size");
    if (bytes == nullptr) return false;
    const std::uint64_t wanted = size_bytes(input.what);
    if (bytes->is_number_unsigned() && bytes->get<std::uint64_t>() == wanted) return true;
    return mistake_in(input, "binary_data_size has to be " + std::to_string(wanted));
}

/// Its place in a region, which has to be as long as the tensor; nothing: it lies in none.
result<std::optional<region_part>> region_of(const json& from, const named_tensor& input) {
    const json* parameters = member(from, "parameters");
    if (parameters == nullptr) return std::optional<region_part>{};
    auto out = read_region_part(*parameters);
    if (!out) return out.error();
    if (*out && (*out)->bytes != size_bytes(input.what)) return other_region_bytes(input, (*out)->bytes);
    return out;
}

result<input_source> read_source(const json& from, const model_description& model) {
    const json* name = member(from, "name");
    if (name == nullptr || !name->is_string()) return mistake("an input has no name");
    const auto found = find_input(model, name->get_ref<const std::string&>());
    if (!found) return found.error();
    const named_tensor& input = model.inputs[found.value()];
    if (auto good = check_type(from, input); !good) return good.error();
    if (auto good = check_shape(from, input); !good) return good.error();
    const auto binary = is_binary(from, input);
    if (!binary) return binary.error();
    return input_source{found.value(), binary.value(), {}};
}

result<json> take_data(json& from, const named_tensor& input) {
    const auto data = from.find("data");
    if (data == from.end()) return mistake_in(input, "there are neither data nor a binary_data_size");
    if (auto good = check_data(*data, input.what); !good)
        return refusal(good.error().code, "input " + in_quotes(input.name) + ": " + good.error().message);
    return std::move(*data);
}

bool is_given(const infer_request& so_far, std::size_t index) {
    return std::ranges::find(so_far.inputs, index, &input_source::index) != so_far.inputs.end() ||
           std::ranges::find(so_far.regions, index, &region_input::index) != so_far.regions.end();
}

result<void> add_input(json& from, const model_description& model, infer_request& to) {
    auto one = read_source(from, model);
    if (!one) return one.error();
    const named_tensor& input = model.inputs[one->index];
    if (is_given(to, one->index)) return given_twice(input);
    auto region = region_of(from, input);
    if (!region) return region.error();
    const int ways = (one->binary ? 1 : 0) + (*region ? 1 : 0) + (from.contains("data") ? 1 : 0);
    if (ways > 1) return mistake_in(input, "it has several of data, a binary_data_size and a shared_memory_region");
    if (*region) {
        to.regions.push_back({one->index, **std::move(region)});
        return {};
    }
    if (!one->binary) {
        auto data = take_data(from, input);
        if (!data) return data.error();
        one->data = std::move(data).value();
    }
    to.inputs.push_back(std::move(one).value());
    return {};
}

result<void> read_inputs(json& document, const model_description& model, infer_request& to) {
    const auto list = document.find("inputs");
    if (list == document.end() || !list->is_array()) return mistake("the request has no list of inputs");
    for (json& each : *list)
        if (auto added = add_input(each, model, to); !added) return added;
    const std::size_t given = to.inputs.size() + to.regions.size();
    if (given == model.inputs.size()) return {};
    return inputs_lacking(given, model);
}

result<void> check_binary_bytes(std::span<const input_source> inputs, const model_description& model,
                                std::uint64_t binary_bytes) {
    std::uint64_t sum = 0;
    for (const input_source& each : inputs)
        if (each.binary) sum += size_bytes(model.inputs[each.index].what);
    if (sum == binary_bytes) return {};
    return mistake("the inputs have " + std::to_string(sum) + " bytes of binary data, and the body " +
                   std::to_string(binary_bytes));
}

}  // namespace

result<infer_request> read_infer_head(std::string_view head, std::uint64_t binary_bytes,
                                      const model_description& model) {
    auto document = parse_object(head);
    if (!document) return document.error();
    infer_request out;
    auto id = read_id(*document);
    if (!id) return id.error();
    const auto timeout = read_parameters(*document);
    if (!timeout) return timeout.error();
    auto outputs = chosen_outputs(*document, model);
    if (!outputs) return outputs.error();
    if (auto read = read_inputs(*document, model, out); !read) return read.error();
    if (auto good = check_binary_bytes(out.inputs, model, binary_bytes); !good) return good.error();
    out.id = std::move(id).value();
    out.timeout = timeout.value();
    out.outputs = std::move(outputs).value();
    return out;
}

result<infer_request> raw_infer_request(std::uint64_t binary_bytes, const model_description& model) {
    if (model.inputs.size() != 1) return mistake("a raw binary request is for models with one input alone");
    const std::uint64_t wanted = size_bytes(model.inputs.front().what);
    if (binary_bytes != wanted)
        return mistake_in(model.inputs.front(),
                          "it has " + std::to_string(wanted) + " bytes, and the body " + std::to_string(binary_bytes));
    infer_request out;
    out.inputs.push_back({0, true, {}});
    for (std::size_t i = 0; i < model.outputs.size(); ++i) out.outputs.push_back({i, false});
    return out;
}

std::vector<std::span<std::byte>> binary_places(const infer_request& request, const model_description& model,
                                                std::span<std::byte> room) {
    std::vector<std::span<std::byte>> out;
    for (const input_source& each : request.inputs)
        if (each.binary) out.push_back(bytes_of(model.inputs[each.index].what, room));
    return out;
}

void clear_gaps(const model_description& model, std::span<std::byte> room) {
    std::size_t end = 0;
    for (const named_tensor& each : model.inputs) {
        std::ranges::fill(room.subspan(end, each.what.offset - end), std::byte{0});
        end = each.what.offset + size_bytes(each.what);
    }
}

void write_json_inputs(const infer_request& request, const model_description& model, std::span<std::byte> room) {
    clear_gaps(model, room);
    for (const input_source& each : request.inputs) {
        const tensor& what = model.inputs[each.index].what;
        if (!each.binary) write_data(each.data, what, bytes_of(what, room));
    }
}

}  // namespace accel::examples::serving::oip
