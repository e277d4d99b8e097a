// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/infer_inputs.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/grpc/typed_contents.hpp"
#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

/// A tensor of a request; its shape holds as many dimensions as one of ours has, and counts the others.
struct input_tensor {
    std::string name;
    std::string type;
    std::array<std::uint64_t, max_tensor_rank> shape{};
    std::size_t rank = 0;
    std::vector<parameter> parameters;
    bool has_contents = false;
};

bool add_dimension(input_tensor& to, std::uint64_t value) {
    if (to.rank == to.shape.size()) return false;
    to.shape[to.rank++] = value;
    return true;
}

bool add_dimensions(input_tensor& to, field one) {
    if (one.how == form::varint) return add_dimension(to, one.value);
    std::uint64_t value = 0;
    while (one.bytes.size() > 0)
        if (!one.bytes.varint(value) || !add_dimension(to, value)) return false;
    return true;
}

bool keep(input_tensor& to, const field& one) {
    if (one.number == 3 && (one.how == form::varint || one.how == form::bytes)) return add_dimensions(to, one);
    if (one.how != form::bytes) return true;
    if (one.number == 1) return read_text(one.bytes, max_name_bytes, to.name);
    if (one.number == 2) return read_text(one.bytes, max_name_bytes, to.type);
    if (one.number == 4) return add_parameter(to.parameters, one.bytes);
    to.has_contents = to.has_contents || one.number == 5;
    return true;
}

result<input_tensor> read_input(const cursor& from) {
    input_tensor out;
    field_walk fields{from};
    field one;
    while (fields.next(one))
        if (!keep(out, one))
            return oip::refusal(status::invalid_argument,
                                "input " + oip::in_quotes(out.name) + " is malformed, or has more than 8 dimensions");
    if (fields.malformed()) return malformed_message();
    return out;
}

result<tensor> shape_of(const input_tensor& given, const oip::named_tensor& input) {
    const auto said = std::span{given.shape}.first(given.rank);
    for (const std::uint64_t each : said)
        if (static_cast<std::int64_t>(each) < 0) return oip::negative_dimension(input);
    return oip::with_shape(input, said);
}

bool read_number(std::span<const parameter> list, const char* name, std::uint64_t& to) {
    const parameter* found = find_parameter(list, name);
    if (found == nullptr) return false;
    to = found->value;
    const bool negative = found->kind == int64_param && static_cast<std::int64_t>(found->value) < 0;
    return (found->kind == int64_param || found->kind == uint64_param) && !negative;
}

/// As `oip::read_region_part` does.
result<std::optional<oip::region_part>> read_region_part(std::span<const parameter> list) {
    const parameter* name = find_parameter(list, "shared_memory_region");
    if (name == nullptr) return std::optional<oip::region_part>{};
    oip::region_part out{.region = name->text};
    const bool sized = read_number(list, "shared_memory_byte_size", out.bytes);
    const bool placed = find_parameter(list, "shared_memory_offset") == nullptr ||
                        read_number(list, "shared_memory_offset", out.offset);
    if (name->kind != string_param || !sized || !placed) return oip::bad_region_part();
    return std::optional{std::move(out)};
}

bool is_given(const wire_request& so_far, std::size_t index) {
    return std::ranges::find(so_far.inputs, index, &wire_input::index) != so_far.inputs.end() ||
           std::ranges::find(so_far.regions, index, &oip::region_input::index) != so_far.regions.end();
}

/// The bytes that they become.
result<std::uint64_t> contents_size(const cursor& from, const oip::named_tensor& input, const tensor& shape) {
    auto out = input.strings ? check_strings(from, shape, input.max_bytes) : check_contents(from, shape);
    if (out) return out;
    return oip::refusal(out.code(), "input " + oip::in_quotes(input.name) + ": " + out.error().message);
}

/// `raw`: the raw contents that no input has taken; those in regions take none.
result<void> add_input(const cursor& from, std::span<const cursor>& raw, bool has_raw,
                       const oip::model_description& model, wire_request& to) {
    auto given = read_input(from);
    if (!given) return given.error();
    const auto found = oip::find_input(model, given->name);
    if (!found) return found.error();
    const oip::named_tensor& input = model.inputs[found.value()];
    if (auto good = oip::check_datatype(input, given->type); !good) return good;
    const auto shape = shape_of(*given, input);
    if (!shape) return shape.error();
    const auto set = [&](std::uint64_t bytes) { to.payload.set(input, found.value(), shape.value(), bytes); };
    if (is_given(to, found.value())) return oip::given_twice(input);
    auto region = read_region_part(given->parameters);
    if (!region) return region.error();
    if (*region) {
        if (given->has_contents) return oip::mistake_in(input, "it has both contents and a shared_memory_region");
        if (auto good = oip::check_bytes(input, shape.value(), (*region)->bytes, "shared_memory_byte_size"); !good)
            return good;
        set((*region)->bytes);
        to.regions.push_back({found.value(), **std::move(region)});
        return {};
    }
    if (!has_raw) {
        const auto bytes = contents_size(from, input, shape.value());
        if (!bytes) return bytes.error();
        set(bytes.value());
        to.inputs.push_back({found.value(), false, from});
        return {};
    }
    if (raw.empty()) return oip::mistake_in(input, "its raw contents are missing");
    if (given->has_contents) return oip::mistake_in(input, "it has both contents and raw contents");
    const std::uint64_t bytes = raw.front().size();
    if (auto good = oip::check_bytes(input, shape.value(), bytes, "the number of bytes of its raw contents"); !good)
        return good;
    set(bytes);
    to.inputs.push_back({found.value(), true, raw.front()});
    raw = raw.subspan(1);
    return {};
}

result<void> add_inputs(const infer_message& message, const oip::model_description& model, wire_request& to) {
    std::span<const cursor> raw{message.raw};
    for (const cursor& each : message.inputs)
        if (auto added = add_input(each, raw, !message.raw.empty(), model, to); !added) return added;
    if (!raw.empty())
        return oip::refusal(status::invalid_argument, "the request has " + std::to_string(message.inputs.size()) +
                                                          " inputs, but its raw contents are of " +
                                                          std::to_string(message.raw.size()));
    const std::size_t given = to.inputs.size() + to.regions.size();
    if (given == model.inputs.size()) return {};
    return oip::inputs_lacking(given, model);
}

result<oip::output_choice> fit_output(const cursor& from, const oip::model_description& model) {
    std::string name;
    std::vector<parameter> parameters;
    field_walk fields{from};
    field one;
    bool good = true;
    while (good && fields.next(one)) {
        if (one.is(1, form::bytes)) good = read_text(one.bytes, max_name_bytes, name);
        if (one.is(2, form::bytes)) good = add_parameter(parameters, one.bytes);
    }
    if (!good || fields.malformed()) return malformed_message();
    if (find_parameter(parameters, "classification") != nullptr) return oip::no_classification();
    auto region = read_region_part(parameters);
    if (!region) return region.error();
    const auto found = oip::find_output(model, name);
    if (!found) return found.error();
    return oip::output_choice{found.value(), true, std::move(region).value()};
}

result<std::vector<oip::output_choice>> fit_outputs(const infer_message& message, const oip::model_description& model) {
    std::vector<oip::output_choice> out;
    if (message.outputs.empty())
        for (std::size_t i = 0; i < model.outputs.size(); ++i) out.push_back({i, true});
    for (const cursor& each : message.outputs) {
        auto one = fit_output(each, model);
        if (!one) return one.error();
        if (std::ranges::find(out, one->index, &oip::output_choice::index) != out.end()) return oip::output_twice();
        out.push_back(std::move(one).value());
    }
    return out;
}

/// Neither 0, "" nor false, which stock clients send where they mean none.
bool says_something(const parameter& one) {
    return one.kind == string_param ? !one.text.empty() : one.value != 0;
}

result<std::chrono::nanoseconds> read_timeout(std::span<const parameter> list) {
    for (const char* name : {"sequence_id", "sequence_start", "sequence_end"})
        if (const parameter* found = find_parameter(list, name); found != nullptr && says_something(*found))
            return oip::no_sequences();
    std::uint64_t number = 0;
    if (find_parameter(list, "priority") != nullptr && !read_number(list, "priority", number))
        return oip::bad_priority();
    if (find_parameter(list, "timeout") == nullptr) return std::chrono::nanoseconds{};
    if (!read_number(list, "timeout", number) || number > oip::longest_timeout_us) return oip::bad_timeout();
    return std::chrono::nanoseconds{std::chrono::microseconds{static_cast<std::int64_t>(number)}};
}

}  // namespace

result<wire_request> fit_to_model(const infer_message& message, const oip::model_description& model) {
    if (auto known = oip::check_version(model.name, message.version); !known) return known.error();
    const auto timeout = read_timeout(message.parameters);
    if (!timeout) return timeout.error();
    auto outputs = fit_outputs(message, model);
    if (!outputs) return outputs.error();
    wire_request out;
    out.payload = oip::request_payload{model};
    if (auto added = add_inputs(message, model, out); !added) return added.error();
    out.payload.place();
    const parameter* end = find_parameter(message.parameters, "triton_enable_empty_final_response");
    out.outputs = std::move(outputs).value();
    out.timeout = timeout.value();
    out.empty_end = end != nullptr && end->kind == bool_param && end->value != 0;
    return out;
}

void write_inputs(const wire_request& request, const oip::model_description& model, std::span<std::byte> room) {
    request.payload.clear_gaps(room);
    for (const wire_input& each : request.inputs) {
        const auto place = request.payload.of(each.index, room);
        cursor from = each.from;
        if (each.raw)
            static_cast<void>(from.copy(place));  // `fit_to_model` has compared the sizes
        else if (model.inputs[each.index].strings)
            write_strings(from, place);
        else
            write_contents(from, model.inputs[each.index].what, place);
    }
}

}  // namespace accel::examples::serving::wire
