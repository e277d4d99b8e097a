// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/output_choice.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

/// A boolean parameter of a message, a tensor or an output.
result<bool> flag_of(const json& owner, const char* name, bool usual) {
    const json* parameters = member(owner, "parameters");
    const json* value = parameters == nullptr ? nullptr : member(*parameters, name);
    if (value == nullptr) return usual;
    if (value->is_boolean()) return value->get<bool>();
    return refusal(status::invalid_argument, std::string{"the parameter "} + name + " must be true or false");
}

result<output_choice> chosen_output(const json& from, const model_description& model, bool usual) {
    const json* name = member(from, "name");
    if (name == nullptr || !name->is_string())
        return refusal(status::invalid_argument, "a requested output has no name");
    const auto found = find_output(model, name->get_ref<const std::string&>());
    if (!found) return found.error();
    const json* parameters = member(from, "parameters");
    if (parameters != nullptr && member(*parameters, "classification") != nullptr) return no_classification();
    const auto binary = flag_of(from, "binary_data", usual);
    if (!binary) return binary.error();
    output_choice out{found.value(), binary.value()};
    if (parameters == nullptr) return out;
    auto region = read_region_part(*parameters);
    if (!region) return region.error();
    out.region = std::move(region).value();
    return out;
}

}  // namespace

result<std::vector<output_choice>> chosen_outputs(const json& request, const model_description& model) {
    const auto usual = flag_of(request, "binary_data_output", false);
    if (!usual) return usual.error();
    std::vector<output_choice> out;
    const json* list = member(request, "outputs");
    if (list != nullptr && !list->is_array())
        return refusal(status::invalid_argument, "the outputs of the request are not a list");
    if (list == nullptr || list->empty()) {
        for (std::size_t i = 0; i < model.outputs.size(); ++i) out.push_back({i, usual.value()});
        return out;
    }
    for (const json& each : *list) {
        auto one = chosen_output(each, model, usual.value());
        if (!one) return one.error();
        if (std::ranges::find(out, one->index, &output_choice::index) != out.end()) return output_twice();
        out.push_back(std::move(one).value());
    }
    return out;
}

}  // namespace accel::examples::serving::oip
