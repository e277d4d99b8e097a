// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/model_description.hpp"

#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <accel_transport/target.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

constexpr std::size_t max_payload_bytes = std::size_t{1} << 30;  // of a channel

error of_tensor(const std::string& name, const std::string& what) {
    return refusal(status::invalid_argument, "tensor " + in_quotes(name) + ": " + what);
}

result<void> read_shape(const json& from, const std::string& name, tensor& to) {
    if (!from.is_array() || from.size() > max_tensor_rank) return of_tensor(name, "a shape is up to 8 numbers");
    for (const json& each : from) {
        const bool fits = each.is_number_unsigned() && each.get<std::uint64_t>() > 0 &&
                          each.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
        if (!fits) return of_tensor(name, "a dimension is a whole number from 1 to 4294967295");
        to.shape[to.rank++] = each.get<std::uint32_t>();
    }
    return {};
}

result<bool> read_flag(const json& from, const char* name) {
    const json* value = member(from, name);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    return refusal(status::invalid_argument, in_quotes(name) + " is neither true nor false");
}

result<named_tensor> read_tensor(const json& from) {
    const json* name = member(from, "name");
    const json* type = member(from, "datatype");
    const json* shape = member(from, "shape");
    const bool whole = name != nullptr && name->is_string() && type != nullptr && type->is_string() && shape != nullptr;
    if (!whole) return refusal(status::invalid_argument, "a tensor has a name, a datatype and a shape");
    named_tensor out{name->get<std::string>(), {}, false};
    const auto known = type_of(type->get_ref<const std::string&>());
    if (!known)
        return of_tensor(out.name, in_quotes(type->get_ref<const std::string&>()) + " is no datatype of a payload");
    out.what.type = *known;
    if (auto read = read_shape(*shape, out.name, out.what); !read) return read.error();
    const auto text = read_flag(from, "text");
    if (!text) return of_tensor(out.name, text.error().message);
    out.text = text.value();
    if (out.text && out.what.type != data_type{type_code::unsigned_integer, 8, 1})
        return of_tensor(out.name, "a text has the datatype UINT8");
    return out;
}

result<std::vector<named_tensor>> read_tensors(const json& document, const char* key) {
    const json* list = member(document, key);
    if (list == nullptr || !list->is_array())
        return refusal(status::invalid_argument, std::string{"the description has no list of "} + key);
    std::vector<named_tensor> out;
    for (const json& each : *list) {
        auto one = read_tensor(each);
        if (!one) return one.error();
        out.push_back(std::move(one).value());
    }
    return out;
}

result<void> check_names(std::span<const named_tensor> list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].name.empty()) return refusal(status::invalid_argument, "a tensor has no name");
        for (std::size_t k = 0; k < i; ++k)
            if (list[k].name == list[i].name) return of_tensor(list[i].name, "there are two of this name");
    }
    return {};
}

result<std::size_t> check_tensors(std::span<named_tensor> list) {
    if (list.empty() || list.size() > max_tensors)
        return refusal(status::invalid_argument, "a model has 1 to 64 inputs, and as many outputs");
    if (auto good = check_names(list); !good) return good.error();
    const std::size_t bytes = place(list);
    if (bytes == 0 || bytes > max_payload_bytes)
        return refusal(status::invalid_argument, "the tensors have no bytes, or more than 1 GiB");
    return bytes;
}

}  // namespace

std::size_t place(std::span<named_tensor> list) noexcept {
    std::size_t end = 0;
    for (auto& [name, what, text] : list) {
        if (!detail::is_sane(what)) return 0;
        what.offset = (end + 63) / 64 * 64;
        end = what.offset + size_bytes(what);
    }
    return end;
}

result<model_description> checked(model_description model) {
    if (!is_target_name(model.name) || !is_target_name(model.target))
        return refusal(status::invalid_argument, in_quotes(model.name) + " is no name of a model: 1 to 64 characters");
    const auto inputs = check_tensors(model.inputs);
    if (!inputs) return inputs.error();
    const auto outputs = check_tensors(model.outputs);
    if (!outputs) return outputs.error();
    model.input_bytes = inputs.value();
    model.output_bytes = outputs.value();
    return model;
}

result<model_description> read_description(std::string_view text) {
    const auto document = parse_object(text);
    if (!document) return document.error();
    const json* name = member(document.value(), "name");
    if (name == nullptr || !name->is_string()) return refusal(status::invalid_argument, "the description has no name");
    const json* target = member(document.value(), "target");
    if (target != nullptr && !target->is_string()) return refusal(status::invalid_argument, "the target is no text");
    auto inputs = read_tensors(document.value(), "inputs");
    if (!inputs) return inputs.error();
    auto outputs = read_tensors(document.value(), "outputs");
    if (!outputs) return outputs.error();
    const auto decoupled = read_flag(document.value(), "decoupled");
    if (!decoupled) return decoupled.error();
    model_description out;
    out.decoupled = decoupled.value();
    out.name = name->get<std::string>();
    out.target = target == nullptr ? out.name : target->get<std::string>();
    out.inputs = std::move(inputs).value();
    out.outputs = std::move(outputs).value();
    return checked(std::move(out));
}

std::string shape_text(const tensor& one) {
    std::string out = "[";
    for (std::uint32_t i = 0; i < one.rank; ++i) {
        if (i > 0) out += ',';
        out += std::to_string(one.shape[i]);
    }
    return out + ']';
}

}  // namespace accel::examples::serving::oip
