// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/generate.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/infer_answer.hpp"
#include "serving/doors/oip/json_data.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/request_fields.hpp"

#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

bool is_one_element(const tensor& what) {
    return size_bytes(what) * 8 == what.type.bits;
}

result<void> check_field(const json& value, const named_tensor& input) {
    const auto& what = input.what;
    if (!input.text) {
        if (auto good = check_data(value, what); !good) return mistake_in(input, good.error().message);
        return {};
    }
    if (!value.is_string()) return mistake_in(input, "it is a text, in quotes");
    if (value.get_ref<const std::string&>().size() <= size_bytes(what)) return {};
    return mistake_in(input, "the text is longer than " + std::to_string(size_bytes(what)) + " bytes");
}

result<input_source> read_field(const std::string& name, json& value, const model_description& model) {
    const auto found = find_input(model, name);
    if (!found) return found.error();
    const named_tensor& input = model.inputs[found.value()];
    const bool alone = is_one_element(input.what) && !input.text && value.is_primitive();
    json data = alone ? json::array({std::move(value)}) : std::move(value);
    if (auto good = check_field(data, input); !good) return good.error();
    return input_source{found.value(), false, std::move(data)};
}

/// The text up to the zeros behind it.
std::string text_of(std::span<const std::byte> elements) {
    while (!elements.empty() && elements.back() == std::byte{0}) elements = elements.first(elements.size() - 1);
    return {reinterpret_cast<const char*>(elements.data()), elements.size()};
}

result<std::string> value_of(const named_tensor& declared, const tensor& what, std::span<const std::byte> elements) {
    if (declared.text) return json_string(text_of(elements));
    std::string out;
    if (elements.size() > max_json_output_bytes)
        return refusal(status::invalid_argument, "it is too large for JSON: ask for binary data with infer");
    if (auto written = append_data(out, what, elements); !written) return written.error();
    return is_one_element(what) ? out.substr(1, out.size() - 2) : out;  // without the brackets
}

}  // namespace

result<infer_request> read_generate(std::string_view text, const model_description& model) {
    auto document = parse_object(text);
    if (!document) return document.error();
    auto id = read_id(*document);
    if (!id) return id.error();
    const auto timeout = read_parameters(*document);
    if (!timeout) return timeout.error();
    infer_request out;
    for (auto& [name, value] : document->items()) {
        if (name == "id" || name == "parameters") continue;
        auto one = read_field(name, value, model);
        if (!one) return one.error();
        out.inputs.push_back(std::move(one).value());
    }
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
        const auto value = value_of(declared, outputs[i], bytes_of(outputs[i], payload));
        if (!value) return refusal(value.code(), "output " + in_quotes(declared.name) + ": " + value.error().message);
        out += ',' + json_string(declared.name) + ':' + value.value();
    }
    return out + '}';
}

std::string event_of(std::string_view document) {
    return "data: " + std::string{document} + "\n\n";
}

}  // namespace accel::examples::serving::oip
