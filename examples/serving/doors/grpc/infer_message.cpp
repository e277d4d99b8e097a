// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/infer_message.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

constexpr std::uint32_t double_param = 4;

/// A oneof: the last field that is set.
bool read_parameter(const cursor& from, parameter& to) {
    field_walk fields{from};
    field one;
    while (fields.next(one)) {
        const bool number = one.how == form::varint && (one.number <= int64_param || one.number == uint64_param);
        const bool other = one.is(string_param, form::bytes) || one.is(double_param, form::fixed64);
        if (!number && !other) continue;
        to.kind = one.number;
        to.value = number ? one.value : 0;
        const bool text = one.number == string_param && read_text(one.bytes, max_name_bytes, to.text);
        if (!text) to.text.clear();
    }
    return !fields.malformed();
}

void put(std::vector<parameter>& to, parameter one) {
    const auto same = std::ranges::find(to, one.name, &parameter::name);
    if (same == to.end())
        to.push_back(std::move(one));
    else
        *same = std::move(one);
}

error too_long(const char* what) {
    return oip::refusal(status::invalid_argument, std::string{what} + " is longer than 256 bytes");
}

result<void> keep_text(const field& from, const char* what, std::string& to) {
    if (read_text(from.bytes, max_name_bytes, to)) return {};
    return too_long(what);
}

result<void> keep_place(const field& from, const char* what, std::vector<cursor>& to) {
    if (to.size() >= max_entries)
        return oip::refusal(status::invalid_argument, std::string{"the request has more than 64 "} + what);
    to.push_back(from.bytes);
    return {};
}

result<void> keep_parameter(const field& from, std::vector<parameter>& to) {
    if (add_parameter(to, from.bytes)) return {};
    return oip::refusal(status::invalid_argument, "the parameters are malformed, or there are more than 64");
}

result<void> keep_field(const field& from, infer_message& to) {
    if (from.how != form::bytes) return {};
    switch (from.number) {
        case 1:
            return keep_text(from, "the model's name", to.model);
        case 2:
            return keep_text(from, "the version", to.version);
        case 3:
            return keep_text(from, "the id", to.id);
        case 4:
            return keep_parameter(from, to.parameters);
        case 5:
            return keep_place(from, "inputs", to.inputs);
        case 6:
            return keep_place(from, "outputs", to.outputs);
        case 7:
            return keep_place(from, "raw contents", to.raw);
        default:
            return {};
    }
}

}  // namespace

bool add_parameter(std::vector<parameter>& to, const cursor& entry) {
    field_walk fields{entry};
    field one;
    parameter out;
    bool named = true;
    while (fields.next(one)) {
        if (one.is(1, form::bytes)) named = read_text(one.bytes, max_name_bytes, out.name);
        if (one.is(2, form::bytes) && !read_parameter(one.bytes, out)) return false;
    }
    if (fields.malformed()) return false;
    if (named) put(to, std::move(out));
    return to.size() <= max_entries;
}

const parameter* find_parameter(std::span<const parameter> list, std::string_view name) noexcept {
    const auto found = std::ranges::find(list, name, &parameter::name);
    return found == list.end() ? nullptr : &*found;
}

result<infer_message> read_infer_message(std::span<const slice> slices) {
    infer_message out;
    field_walk fields{cursor{slices}};
    field one;
    while (fields.next(one))
        if (auto kept = keep_field(one, out); !kept) return kept.error();
    if (fields.malformed()) return malformed_message();
    return out;
}

error malformed_message() {
    return oip::refusal(status::invalid_argument, "the message is not a protobuf of this protocol, or is incomplete");
}

}  // namespace accel::examples::serving::wire
