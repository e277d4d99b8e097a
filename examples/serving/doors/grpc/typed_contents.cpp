// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/grpc/typed_contents.hpp"

#include "serving/doors/grpc/fields.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/element_types.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace accel::examples::serving::wire {
namespace {

using oip::count_of;

constexpr std::uint32_t contents_field = 5;  // of InferInputTensor
constexpr std::uint32_t strings_list = 8;    // bytes_contents of InferTensorContents

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

error mistake(const std::string& sentence) {
    return oip::refusal(status::invalid_argument, sentence);
}

error other_count(const char* list, std::uint64_t wanted) {
    return mistake(std::string{list} + " does not have the " + std::to_string(wanted) + " elements of the shape");
}

/// As `walk_input`, for the list that has a field for each element.
template <class Use>
walk_result walk_strings(const cursor& input, Use use) {
    walk_result out;
    field_walk fields{input};
    field one;
    while (out.good && fields.next(one)) {
        if (!one.is(contents_field, form::bytes)) continue;
        field_walk contents{one.bytes};
        field element;
        while (out.good && contents.next(element)) {
            if (element.is(strings_list, form::bytes)) out.good = use(element.bytes);
            out.other = out.other || (element.number >= 1 && element.number < strings_list);
        }
        out.good = out.good && !contents.malformed();
    }
    return out;
}

}  // namespace

result<std::uint64_t> check_contents(const cursor& input, const tensor& what) {
    const typed_list list = list_of(what.type);
    if (list.number == 0)
        return oip::refusal(status::unsupported,
                            std::string{oip::name_of(what.type)} + " has no typed list of contents: send raw contents");
    std::uint64_t count = 0;
    bool in_range = true;
    const auto seen = walk_input(input, list, [&](std::uint64_t value) {
        in_range = fits(value, what.type);
        return in_range && ++count <= count_of(what);
    });
    if (!in_range) return mistake("a value of the contents is not a valid " + std::string{oip::name_of(what.type)});
    if (seen.other) return mistake(std::string{"its contents are not in "} + list.name);
    if (seen.good && count == count_of(what)) return size_bytes(what);
    return other_count(list.name, count_of(what));
}

result<std::uint64_t> check_strings(const cursor& input, const tensor& shape, std::uint64_t max_bytes) {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    const auto seen = walk_strings(input, [&](const cursor& element) {
        bytes += oip::string_length_bytes + element.size();
        return ++count <= count_of(shape) && bytes <= max_bytes;
    });
    if (bytes > max_bytes)
        return mistake("the strings have more than " + std::to_string(max_bytes) + " bytes, with their lengths");
    if (seen.other) return mistake("its contents are not in bytes_contents");
    if (seen.good && count == count_of(shape)) return bytes;
    return other_count("bytes_contents", count_of(shape));
}

void write_strings(const cursor& input, std::span<std::byte> to) {
    static_cast<void>(walk_strings(input, [&](cursor element) {
        const auto length = static_cast<std::uint32_t>(element.size());
        if (to.size() < sizeof length + length) return false;
        std::memcpy(to.data(), &length, sizeof length);
        to = to.subspan(sizeof length);
        const bool copied = element.copy(to.first(length));
        to = to.subspan(length);
        return copied;
    }));
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
