// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/generate.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/element_reader.hpp"
#include "serving/doors/oip/element_types.hpp"
#include "serving/doors/oip/element_writer.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/json_split.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/request_fields.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

constexpr std::size_t longest_output = std::size_t{1} << 20;  // it is written in one go

/// A field says no shape: how many elements it has says it.
result<input_source> read_field(const std::string& name, const held_value& value, const model_description& model) {
    const auto found = find_input(model, name);
    if (!found) return found.error();
    const named_tensor& input = model.inputs[found.value()];
    input_source out{.index = found.value(), .form = input_form::padded, .shape = input.what, .text = value.text};
    if (input.text) return out;
    const bool open = variable_dimensions(input.what) > 0;
    const auto shape = open ? with_elements(input, count_elements(value.text)) : result<tensor>{input.what};
    if (!shape) return shape.error();
    const std::size_t begin = value.text.find_first_not_of(" \t\r\n");
    const bool array = begin != std::string_view::npos && value.text[begin] == '[';
    out.form = array || count_of(shape.value()) > 1 ? input_form::elements : input_form::alone;
    out.shape = shape.value();
    return out;
}

result<void> read_fields(const split_object& document, const model_description& model, std::vector<input_source>& to) {
    std::size_t unused = 0;
    for (const auto& [name, value] : document.tree.items()) {
        const held_value* const held = find_held(document, name);
        if (held == nullptr) continue;
        if (find_input(model, name)) {
            auto one = read_field(name, *held, model);
            if (!one) return one.error();
            to.push_back(std::move(one).value());
            continue;
        }
        // Clients send fields that other servers know (temperature, stream).
        unused += held->text.size();
        if (unused > max_json_frame)
            return refusal(status::invalid_argument, "the JSON has more than 64 KiB besides its inputs");
        if (!json::accept(held->text)) return refusal(status::invalid_argument, "the request is not JSON");
    }
    return {};
}

/// The text up to the zeros after it.
std::string text_of(std::span<const std::byte> elements) {
    while (!elements.empty() && elements.back() == std::byte{0}) elements = elements.first(elements.size() - 1);
    return {reinterpret_cast<const char*>(elements.data()), elements.size()};
}

result<std::string> value_of(const named_tensor& declared, const tensor& what, std::span<const std::byte> payload) {
    const auto elements = bytes_of(what, payload);
    if (declared.text) return json_string(text_of(elements));
    std::string out;
    if (elements.size() > longest_output)
        return refusal(status::invalid_argument, "it is too large for JSON: ask for binary data with infer");
    const auto shown = shown_tensor(declared, what, payload);
    if (!shown) return shown.error();
    if (auto written = append_elements(out, what, declared.strings, elements); !written) return written.error();
    return count_of(shown.value()) == 1 ? out.substr(1, out.size() - 2) : out;  // without the brackets
}

}  // namespace

result<infer_request> read_generate(std::string_view text, const model_description& model) {
    const auto document = split_fields(text);
    if (!document) return document.error();
    const json& tree = document.value().tree;
    auto id = read_id(tree);
    if (!id) return id.error();
    const auto timeout = read_parameters(tree);
    if (!timeout) return timeout.error();
    infer_request out;
    out.payload = request_payload{model};
    if (auto read = read_fields(document.value(), model, out.inputs); !read) return read.error();
    if (out.inputs.size() != model.inputs.size()) return inputs_lacking(out.inputs.size(), model);
    out.id = std::move(id).value();
    out.timeout = timeout.value();
    return out;
}

result<std::string> generate_document(const model_description& model, std::string_view id,
                                      std::span<const tensor> outputs, std::span<const std::byte> payload) {
    std::string out = R"({"model_name":)" + json_string(model.name) + R"(,"model_version":"1")";
    if (!id.empty()) out += R"(,"id":)" + json_string(id);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const named_tensor& declared = model.outputs[i];
        const auto value = value_of(declared, outputs[i], payload);
        if (!value) return refusal(value.code(), "output " + in_quotes(declared.name) + ": " + value.error().message);
        out += ',' + json_string(declared.name) + ':' + value.value();
    }
    return out + '}';
}

std::string event_of(std::string_view document) {
    return "data: " + std::string{document} + "\n\n";
}

}  // namespace accel::examples::serving::oip
