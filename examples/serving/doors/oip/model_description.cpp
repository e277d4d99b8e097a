// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/model_description.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/object_reader.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <accel_transport/target.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

using file::entry;
using file::wrong;

constexpr std::size_t max_payload_bytes = std::size_t{1} << 30;  // of a channel
constexpr data_type byte_type{type_code::unsigned_integer, 8, 1};

error of_tensor(const std::string& name, const std::string& what) {
    return refusal(status::invalid_argument, "tensor " + in_quotes(name) + ": " + what);
}

bool is_extent(const json& one, std::uint64_t most) {
    return one.is_number_unsigned() && one.get<std::uint64_t>() > 0 && one.get<std::uint64_t>() <= most;
}

entry shape_entry(tensor& to) {
    return {"shape", [&to](const json& from, const file::place& at) -> result<void> {
                if (!from.is_array() || from.size() > max_tensor_rank)
                    return wrong(at, "write a list of up to 8 numbers: [1, 3, 224, 224]");
                for (const json& each : from) {
                    const bool variable = each.is_number_integer() && each == -1;
                    if (!variable && !is_extent(each, std::numeric_limits<std::uint32_t>::max()))
                        return wrong(at, "a dimension must be a whole number from 1 to 4294967295, or -1");
                    to.shape[to.rank++] = variable ? 0 : each.get<std::uint32_t>();
                }
                return {};
            }};
}

entry datatype_entry(named_tensor& to) {
    return {"datatype", [&to](const json& from, const file::place& at) -> result<void> {
                to.strings = from == "BYTES";
                const auto known = from.is_string() ? type_of(from.get_ref<const std::string&>()) : std::nullopt;
                if (!known && !to.strings)
                    return wrong(
                        at, "write BOOL, INT8 … INT64, UINT8 … UINT64, FP16, BF16, FP32, FP64 or BYTES, in quotes");
                to.what.type = known.value_or(byte_type);
                return {};
            }};
}

/// The largest number of values that an integer of this type has, if it is not negative.
std::uint64_t most_values(const data_type& type) {
    if (type.code != type_code::signed_integer && type.code != type_code::unsigned_integer) return 0;
    return std::uint64_t{1} << std::min(type.bits - (type.code == type_code::signed_integer ? 1 : 0), 32);
}

result<named_tensor> read_tensor(const json& from, const file::place& at) {
    named_tensor out;
    const std::array known{file::text("name", out.name, "write the tensor's name, in quotes"),
                           datatype_entry(out),
                           shape_entry(out.what),
                           file::flag("text", out.text),
                           file::number("max_bytes", out.max_bytes, 1, max_payload_bytes),
                           file::number("values", out.values, 1, std::uint64_t{1} << 32)};
    if (auto read = read_object(from, at, known); !read) return read.error();
    for (const char* each : {"name", "datatype", "shape"})
        if (!from.contains(each)) return wrong(at, "a tensor needs a name, a datatype and a shape");
    if (out.text && (out.strings || out.what.type != byte_type))
        return wrong(at.of("text"), "a text needs the datatype UINT8");
    if (out.strings ? out.values > 0 : out.values > most_values(out.what.type))
        return wrong(at.of("values"), "this datatype does not have so many whole numbers");
    return out;
}

entry tensors_entry(const char* key, std::vector<named_tensor>& to) {
    return {key, [&to](const json& from, const file::place& at) -> result<void> {
                if (!from.is_array())
                    return wrong(at, "write a list of tensors: [{\"name\": …, \"datatype\": …, \"shape\": […]}]");
                for (const json& each : from) {
                    auto one = read_tensor(each, at.of(to.size()));
                    if (!one) return one.error();
                    to.push_back(std::move(one).value());
                }
                return {};
            }};
}

entry image_entry(image_size& to) {
    return {
        "image", [&to](const json& from, const file::place& at) -> result<void> {
            constexpr std::uint64_t largest = 16'384;
            if (!from.is_array() || from.size() != 2 || !is_extent(from[0], largest) || !is_extent(from[1], largest))
                return wrong(at, "write [height, width], each a whole number from 1 to 16384");
            to = {from[0].get<std::uint32_t>(), from[1].get<std::uint32_t>()};
            return {};
        }};
}

entry gflops_entry(double& to) {
    return {"gflops", [&to](const json& from, const file::place& at) -> result<void> {
                if (!from.is_number() || from < 0 || from > 1e6) return wrong(at, "write a number from 0 to 1000000");
                to = from.get<double>();
                return {};
            }};
}

result<void> check_names(std::span<const named_tensor> list) {
    for (std::size_t i = 0; i < list.size(); ++i)
        for (std::size_t k = 0; k < i; ++k)
            if (list[k].name == list[i].name) return of_tensor(list[i].name, "this name occurs twice");
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
    if (model.target.empty()) model.target = model.name;
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

std::vector<entry> description_entries(model_description& to) {
    return {file::text("target", to.target, "write the model's name at its server, in quotes"),
            tensors_entry("inputs", to.inputs),
            tensors_entry("outputs", to.outputs),
            file::flag("decoupled", to.decoupled),
            image_entry(to.image),
            gflops_entry(to.gflops),
            file::anything("platform"),  // of a model's metadata
            file::anything("versions")};
}

result<model_description> read_description(std::string_view text, const std::string& name) {
    const file::place whole{name, {}};
    const auto document = file::parse(text, whole);
    if (!document) return document.error();
    model_description out;
    auto known = description_entries(out);
    known.push_back(file::text("name", out.name, "write the model's name, in quotes"));
    if (auto read = read_object(document.value(), whole, known); !read) return read.error();
    auto good = checked(std::move(out));
    if (!good) return wrong(whole, good.error().message);
    return good;
}

result<model_description> read_description_file(const std::string& path) {
    const auto text = file::read_text(path);
    if (!text) return text.error();
    return read_description(text.value(), path);
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
