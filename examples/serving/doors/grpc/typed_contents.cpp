// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/typed_contents.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

constexpr std::uint32_t contents_field = 5;  // of InferInputTensor

/// A list of InferTensorContents.
struct typed_list {
    std::uint32_t number = 0;  ///< of the field; 0: the type has none
    form how = form::varint;   ///< of an element
    const char* name = "";
};

typed_list list_of(const data_type& type) {
    const bool wide = type.bits == 64;
    switch (type.code) {
        case type_code::boolean:
            return {1, form::varint, "bool_contents"};
        case type_code::signed_integer:
            return wide ? typed_list{3, form::varint, "int64_contents"} : typed_list{2, form::varint, "int_contents"};
        case type_code::unsigned_integer:
            return wide ? typed_list{5, form::varint, "uint64_contents"} : typed_list{4, form::varint, "uint_contents"};
        case type_code::floating:
            if (type.bits == 16) return {};
            return wide ? typed_list{7, form::fixed64, "fp64_contents"} : typed_list{6, form::fixed32, "fp32_contents"};
        default:
            return {};
    }
}

/// What the elements of an input are walked for; 0 in `other` after a walk: all of them are in the list.
struct walk_result {
    bool good = true;    ///< well formed, and `use` was content
    bool other = false;  ///< there are elements of another list
};

bool read_element(cursor& from, form how, std::uint64_t& to) {
    if (how == form::varint) return from.varint(to);
    to = 0;
    return from.copy(std::as_writable_bytes(std::span{&to, 1}).first(how == form::fixed64 ? 8 : 4));
}

/// Elements one by one or packed, as the sender likes.
template <class Use>
bool walk_elements(field one, form how, Use& use) {
    if (one.how != form::bytes) return use(one.value);
    std::uint64_t value = 0;
    while (one.bytes.size() > 0)
        if (!read_element(one.bytes, how, value) || !use(value)) return false;
    return true;
}

template <class Use>
void walk_contents(const cursor& contents, const typed_list& list, Use& use, walk_result& to) {
    field_walk fields{contents};
    field one;
    while (to.good && fields.next(one)) {
        const bool element = one.how == list.how || one.how == form::bytes;
        if (one.number == list.number && element)
            to.good = walk_elements(one, list.how, use);
        else if (one.number >= 1 && one.number <= 8)
            to.other = true;
    }
    to.good = to.good && !fields.malformed();
}

/// Calls `use` for each element until it says false. Contents that come in several fields are one, as protobuf has it.
template <class Use>
walk_result walk_input(const cursor& input, const typed_list& list, Use use) {
    walk_result out;
    field_walk fields{input};
    field one;
    while (out.good && fields.next(one))
        if (one.is(contents_field, form::bytes)) walk_contents(one.bytes, list, use, out);
    return out;
}

/// A number as protobuf gives it is one of 32 bits, or of 64; a tensor's may be shorter.
bool fits(std::uint64_t value, const data_type& type) {
    const auto as_signed = static_cast<std::int64_t>(value);
    switch (type.code) {
        case type_code::boolean:
            return value <= 1;
        case type_code::signed_integer:
            return type.bits == 64 || (as_signed >> (type.bits - 1)) == 0 || (as_signed >> (type.bits - 1)) == -1;
        case type_code::unsigned_integer:
            return type.bits == 64 || (value >> type.bits) == 0;
        default:
            return true;
    }
}

std::uint64_t count_of(const tensor& what) {
    return size_bytes(what) / (what.type.bits / 8U);
}

error mistake(const std::string& sentence) {
    return oip::refusal(status::invalid_argument, sentence);
}

}  // namespace

result<void> check_contents(const cursor& input, const tensor& what) {
    const typed_list list = list_of(what.type);
    if (list.number == 0)
        return oip::refusal(status::unsupported,
                            std::string{oip::name_of(what.type)} + " has no list of contents: send raw contents");
    std::uint64_t count = 0;
    bool in_range = true;
    const auto seen = walk_input(input, list, [&](std::uint64_t value) {
        in_range = fits(value, what.type);
        return in_range && ++count <= count_of(what);
    });
    if (!in_range) return mistake("a value of the contents is no " + std::string{oip::name_of(what.type)});
    if (seen.other) return mistake(std::string{"its contents are not in "} + list.name);
    if (seen.good && count == count_of(what)) return {};
    return mistake(std::string{list.name} + " does not have the " + std::to_string(count_of(what)) +
                   " elements of the shape");
}

void write_contents(const cursor& input, const tensor& what, std::span<std::byte> to) {
    const std::size_t bytes = what.type.bits / 8U;
    static_cast<void>(walk_input(input, list_of(what.type), [&](std::uint64_t value) {
        if (to.size() < bytes) return false;
        std::memcpy(to.data(), &value, bytes);
        to = to.subspan(bytes);
        return true;
    }));
}

}  // namespace accel::examples::serving::wire
