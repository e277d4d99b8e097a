// SPDX-License-Identifier: Apache-2.0
#include "serving/models/shapes_file.hpp"

#include <accel_transport/target.hpp>

#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving {
namespace {

using nlohmann::json;

/// No message is longer.
constexpr std::size_t longest_payload = std::size_t{1} << 30;

struct named_type {
    std::string_view name;
    data_type type;
};
constexpr std::array known_types{
    named_type{"float32", {type_code::floating, 32, 1}},     named_type{"float16", {type_code::floating, 16, 1}},
    named_type{"float64", {type_code::floating, 64, 1}},     named_type{"bfloat16", {type_code::bfloat, 16, 1}},
    named_type{"int8", {type_code::signed_integer, 8, 1}},   named_type{"int32", {type_code::signed_integer, 32, 1}},
    named_type{"int64", {type_code::signed_integer, 64, 1}}, named_type{"uint8", {type_code::unsigned_integer, 8, 1}},
    named_type{"int16", {type_code::signed_integer, 16, 1}},
};

error wrong(std::string what) {
    return {status::invalid_argument, 0, std::move(what)};
}

result<data_type> type_of(const json& one) {
    const auto text = one.value("type", std::string{"float32"});
    for (const named_type& each : known_types)
        if (each.name == text) return each.type;
    return wrong("'" + text + "' is not a valid element type: write float32, float16, int64, uint8, …");
}

bool is_extent(const json& one) {
    return one.is_number_unsigned() && one.get<std::uint64_t>() > 0 && one.get<std::uint64_t>() <= UINT32_MAX;
}

result<tensor> tensor_of(const json& one) {
    if (!one.is_object() || !one.contains("shape") || !one["shape"].is_array() ||
        one["shape"].size() > max_tensor_rank || (one.contains("type") && !one["type"].is_string()))
        return wrong(
            "expected a tensor such as {\"type\": \"float32\", \"shape\": [1, 3, 64, 64]}, with at most 8 "
            "dimensions");
    const auto type = type_of(one);
    if (!type) return type.error();
    tensor out{type.value(), 0, 0, {}};
    for (const json& each : one["shape"]) {
        if (!is_extent(each)) return wrong("a shape needs numbers of 1 or more");
        out.shape[out.rank++] = each.get<std::uint32_t>();
    }
    if (!lies_within(out, longest_payload)) return wrong("a tensor has more than 1 GiB");
    return out;
}

result<std::vector<tensor>> tensors_of(const json& document, const char* field) {
    if (!document.contains(field) || !document[field].is_array() || document[field].empty() ||
        document[field].size() > max_tensors)
        return wrong(std::string{field} + " must list 1 to 64 tensors");
    std::vector<tensor> out;
    for (const json& each : document[field]) {
        auto one = tensor_of(each);
        if (!one) return one.error();
        out.push_back(*one);
    }
    if (payload_bytes(out) > longest_payload) return wrong("the tensors have more than 1 GiB");
    return out;
}

result<void> read_image(const json& document, image_size& out) {
    if (!document.contains("image")) return {};
    const json& size = document["image"];
    constexpr std::uint64_t largest = 16'384;
    if (!size.is_array() || size.size() != 2 || !is_extent(size[0]) || !is_extent(size[1]) || size[0] > largest ||
        size[1] > largest)
        return wrong("\"image\" must be [height, width], each at most 16384");
    out = {size[0].get<std::uint32_t>(), size[1].get<std::uint32_t>()};
    return {};
}

}  // namespace

result<model_shapes> parse_shapes(std::string_view text) {
    const json document = json::parse(text, nullptr, false);
    if (!document.is_object()) return wrong("this is not a JSON object");
    if (!document.contains("name") || !document["name"].is_string() ||
        !is_target_name(document["name"].get<std::string>()))
        return wrong("\"name\" must be 1 to 64 printable characters without blanks");
    model_shapes out;
    out.name = document["name"].get<std::string>();
    if (document.contains("gflops") && (!document["gflops"].is_number() || document["gflops"] < 0))
        return wrong("\"gflops\" must be a number of 0 or more");
    out.gflops = document.value("gflops", 0.0);
    if (auto read = read_image(document, out.image); !read) return read.error();
    auto inputs = tensors_of(document, "inputs");
    if (!inputs) return inputs.error();
    auto outputs = tensors_of(document, "outputs");
    if (!outputs) return outputs.error();
    out.inputs = std::move(*inputs);
    out.outputs = std::move(*outputs);
    return out;
}

result<void> add_shapes_file(const std::string& path) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    if (!file) return wrong("cannot read '" + path + "'");
    auto shapes = parse_shapes(text);
    if (!shapes) return wrong("'" + path + "': " + shapes.error().message);
    return add_model(std::move(*shapes));
}

}  // namespace accel::examples::serving
