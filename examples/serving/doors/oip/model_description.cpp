// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/model_description.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <accel_transport/target.hpp>

#include <algorithm>
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
    if (!from.is_array() || from.size() > max_tensor_rank) return of_tensor(name, "a shape may have up to 8 numbers");
    for (const json& each : from) {
        const bool variable = each.is_number_integer() && each == -1;
        const bool fits = each.is_number_unsigned() && each.get<std::uint64_t>() > 0 &&
                          each.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
        if (!fits && !variable)
            return of_tensor(name, "a dimension must be a whole number from 1 to 4294967295, or -1");
        to.shape[to.rank++] = variable ? 0 : each.get<std::uint32_t>();
    }
    return {};
}

result<bool> read_flag(const json& from, const char* name) {
    const json* value = member(from, name);
    if (value == nullptr) return false;
    if (value->is_boolean()) return value->get<bool>();
    return refusal(status::invalid_argument, in_quotes(name) + " must be true or false");
}

result<void> read_max_bytes(const json& from, named_tensor& to) {
    const json* bytes = member(from, "max_bytes");
    if (bytes == nullptr) return {};
    if (!bytes->is_number_unsigned() || bytes->get<std::uint64_t>() > max_payload_bytes)
        return of_tensor(to.name, "max_bytes must be a whole number up to 1073741824");
    to.max_bytes = bytes->get<std::uint64_t>();
    return {};
}

result<named_tensor> read_tensor(const json& from) {
    const json* name = member(from, "name");
    const json* type = member(from, "datatype");
    const json* shape = member(from, "shape");
    const bool whole = name != nullptr && name->is_string() && type != nullptr && type->is_string() && shape != nullptr;
    if (!whole) return refusal(status::invalid_argument, "a tensor needs a name, a datatype and a shape");
    named_tensor out{name->get<std::string>(), {}, false};
    out.strings = *type == "BYTES";
    const auto known = type_of(out.strings ? "UINT8" : type->get_ref<const std::string&>());
    if (!known)
        return of_tensor(out.name, in_quotes(type->get_ref<const std::string&>()) +
                                       " is not a valid datatype of a "
                                       "payload");
    out.what.type = *known;
    if (auto read = read_max_bytes(from, out); !read) return read.error();
    if (auto read = read_shape(*shape, out.name, out.what); !read) return read.error();
    const auto text = read_flag(from, "text");
    if (!text) return of_tensor(out.name, text.error().message);
    out.text = text.value();
    if (out.text && (out.strings || out.what.type != data_type{type_code::unsigned_integer, 8, 1}))
        return of_tensor(out.name, "a text needs the datatype UINT8");
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
            if (list[k].name == list[i].name) return of_tensor(list[i].name, "this name occurs twice");
    }
    return {};
}

/// Says how many bytes it has at most.
result<void> check_bytes(named_tensor& one) {
    if (!detail::is_sane(one.what)) return of_tensor(one.name, "it is not a valid tensor, or is larger than a payload");
    if (one.is_fixed()) one.max_bytes = size_bytes(one.what);
    if (one.max_bytes == 0)
        return of_tensor(one.name, "a dimension of -1, or BYTES, needs max_bytes, the largest size of its elements");
    if (one.text && !one.is_fixed()) return of_tensor(one.name, "a text must not have a dimension of -1");
    if (one.strings && variable_dimensions(one.what) > 1)
        return of_tensor(one.name,
                         "BYTES may have only one dimension of -1: a message says how many strings there are");
    return {};
}

/// Of clients' paths; a server's targets are ASCII.
bool is_model_name(std::string_view name) {
    const auto is_printed = [](char c) { return (c < '\0' || c > ' ') && c != '\x7f'; };
    return !name.empty() && name.size() <= max_target_bytes && std::ranges::all_of(name, is_printed) && is_utf8(name);
}

/// Places the tensors one behind the other, from 0 on, as long as they may be. Returns the length of the payload.
result<std::size_t> place(std::span<named_tensor> list) {
    std::size_t end = 0;
    for (named_tensor& each : list) {
        if (auto good = check_bytes(each); !good) return good.error();
        each.what.offset = next_place(end);
        end = each.what.offset + each.max_bytes;
        if (end > max_payload_bytes) return of_tensor(each.name, "the tensors have more than 1 GiB");
    }
    return end;
}

result<std::size_t> check_tensors(std::span<named_tensor> list) {
    if (list.empty() || list.size() > max_tensors)
        return refusal(status::invalid_argument, "a model must have 1 to 64 inputs, and 1 to 64 outputs");
    if (auto good = check_names(list); !good) return good.error();
    return place(list);
}

}  // namespace

std::size_t variable_dimensions(const tensor& what) noexcept {
    return static_cast<std::size_t>(std::count(what.shape, what.shape + what.rank, 0U));
}

bool named_tensor::is_fixed() const noexcept {
    return !strings && variable_dimensions(what) == 0;
}

result<model_description> checked(model_description model) {
    if (!is_model_name(model.name))
        return refusal(status::invalid_argument, in_quotes(model.name) +
                                                     " is not a valid name of a model: expected 1 to 64 bytes of UTF-8 "
                                                     "without blanks");
    if (!is_target_name(model.target))
        return refusal(status::invalid_argument, in_quotes(model.target) +
                                                     " is not a valid target: expected 1 to 64 printable ASCII "
                                                     "characters without blanks");
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
    if (target != nullptr && !target->is_string())
        return refusal(status::invalid_argument, "the target is not a string");
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

namespace {

std::string joined_shape(const tensor& one, bool open) {
    std::string out = "[";
    for (std::uint32_t i = 0; i < one.rank; ++i) {
        if (i > 0) out += ',';
        out += one.shape[i] == 0 && open ? "-1" : std::to_string(one.shape[i]);
    }
    return out + ']';
}

}  // namespace

std::string shape_text(const tensor& one) {
    return joined_shape(one, true);
}

std::string real_shape_text(const tensor& one) {
    return joined_shape(one, false);
}

std::string_view datatype_of(const named_tensor& one) noexcept {
    return one.strings ? "BYTES" : name_of(one.what.type);
}

result<tensor> with_shape(const named_tensor& declared, std::span<const std::uint64_t> shape, bool may_be_empty) {
    tensor out = declared.what;
    bool same = shape.size() == out.rank;
    for (std::uint32_t i = 0; same && i < out.rank; ++i) {
        if (shape[i] == 0 && !may_be_empty) return mistake_in(declared, "a dimension is 0");
        same = out.shape[i] == 0 || out.shape[i] == shape[i];
        if (same && shape[i] > declared.max_bytes) return too_many_bytes(declared);
        out.shape[i] = static_cast<std::uint32_t>(shape[i]);
    }
    if (!same) return other_shape(declared, shape);
    // `size_bytes` says 2^57 for all that is more.
    const std::uint64_t most = declared.strings ? declared.max_bytes / string_length_bytes : declared.max_bytes;
    if (size_bytes(out) > most) return too_many_bytes(declared);
    return out;
}

result<tensor> with_elements(const named_tensor& declared, std::uint64_t count, bool may_be_empty) {
    tensor known = declared.what;
    std::vector<std::uint64_t> shape(known.shape, known.shape + known.rank);
    const auto open = std::ranges::find(shape, std::uint64_t{0});
    if (open != shape.end()) known.shape[open - shape.begin()] = 1;
    const std::uint64_t rest = size_bytes(known) * 8 / known.type.bits;
    const bool some = count > 0 || may_be_empty;
    const bool whole = rest > 0 && some && count % rest == 0 && (open != shape.end() || count == rest);
    if (!whole)
        return mistake_in(declared, "its shape is " + shape_text(declared.what) + ", which " + std::to_string(count) +
                                        " elements cannot have");
    if (open != shape.end()) *open = count / rest;
    return with_shape(declared, shape, may_be_empty);
}

}  // namespace accel::examples::serving::oip
