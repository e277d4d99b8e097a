// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/json_data.hpp"

#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/refusal.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

namespace accel::examples::serving::oip {
namespace {

using nlohmann::json;

/// Calls `use` with a value of the C++ type whose numbers the tensor holds. Only of a type with a form in JSON.
template <class Use>
auto with_element(const data_type& type, Use use) {
    const bool is_signed = type.code == type_code::signed_integer;
    if (type.code == type_code::boolean) return use(bool{});
    if (type.code == type_code::floating) return type.bits == 32 ? use(float{}) : use(double{});
    if (type.bits == 8) return is_signed ? use(std::int8_t{}) : use(std::uint8_t{});
    if (type.bits == 16) return is_signed ? use(std::int16_t{}) : use(std::uint16_t{});
    if (type.bits == 32) return is_signed ? use(std::int32_t{}) : use(std::uint32_t{});
    return is_signed ? use(std::int64_t{}) : use(std::uint64_t{});
}

template <class Element>
bool fits(const json& number) {
    if constexpr (std::is_same_v<Element, bool>)
        return number.is_boolean() || (number.is_number_unsigned() && number.get<std::uint64_t>() <= 1);
    else if constexpr (std::is_floating_point_v<Element>)
        return number.is_number() && std::abs(number.get<double>()) <= double{std::numeric_limits<Element>::max()};
    else if (number.is_number_unsigned())
        return std::in_range<Element>(number.get<std::uint64_t>());
    else
        return number.is_number_integer() && std::in_range<Element>(number.get<std::int64_t>());
}

template <class Element>
Element element_of(const json& number) {
    if constexpr (std::is_same_v<Element, bool>)
        return number.is_boolean() ? number.get<bool>() : number.get<std::uint64_t>() == 1;
    else
        return number.get<Element>();
}

/// Calls `use` for each number in row-major order until it says false.
template <class Use>
bool for_each_number(const json& data, Use& use) {
    if (!data.is_array()) return use(data);
    for (const json& each : data)
        if (!for_each_number(each, use)) return false;
    return true;
}

bool nested_like(const json& data, const tensor& what, std::uint32_t dimension) {
    if (dimension == what.rank) return !data.is_structured();
    if (!data.is_array() || data.size() != what.shape[dimension]) return false;
    for (const json& each : data)
        if (!nested_like(each, what, dimension + 1)) return false;
    return true;
}

std::uint64_t count_of(const tensor& what) {
    return size_bytes(what) / (what.type.bits / 8U);
}

bool flat_like(const json& data, const tensor& what) {
    if (!data.is_array() || data.size() != count_of(what)) return false;
    for (const json& each : data)
        if (each.is_structured()) return false;
    return true;
}

template <class Element>
bool all_fit(const json& data) {
    auto one = [](const json& number) { return fits<Element>(number); };
    return for_each_number(data, one);
}

void write_text(const std::string& text, std::span<std::byte> to) {
    const auto bytes = std::as_bytes(std::span{text});
    std::ranges::fill(std::ranges::copy(bytes, to.begin()).out, to.end(), std::byte{0});
}

template <class Element>
void write_all(const json& data, std::byte* to) {
    auto one = [&to](const json& number) {
        const Element value = element_of<Element>(number);
        std::memcpy(to, &value, sizeof value);
        to += sizeof value;
        return true;
    };
    for_each_number(data, one);
}

template <class Element>
bool append_number(std::string& to, Element value) {
    if constexpr (std::is_floating_point_v<Element>)
        if (!std::isfinite(value)) return false;
    if constexpr (std::is_same_v<Element, bool>) {
        to += value ? "true" : "false";
    } else {
        char text[32];
        const auto written = std::to_chars(std::begin(text), std::end(text), value);
        to.append(text, written.ptr);
    }
    return true;
}

template <class Element>
Element element_at(std::span<const std::byte> elements, std::size_t at) {
    // A boolean's byte may be any: a peer wrote it.
    if constexpr (std::is_same_v<Element, bool>)
        return elements[at] != std::byte{0};
    else {
        Element value;
        std::memcpy(&value, elements.data() + at, sizeof value);
        return value;
    }
}

template <class Element>
bool append_all(std::string& to, std::span<const std::byte> elements) {
    to += '[';
    for (std::size_t at = 0; at < elements.size(); at += sizeof(Element)) {
        if (at > 0) to += ',';
        if (!append_number(to, element_at<Element>(elements, at))) return false;
    }
    to += ']';
    return true;
}

error no_json_form(const tensor& what) {
    return refusal(status::unsupported,
                   std::string{name_of(what.type)} + " has no form in JSON: send and ask for it as binary data");
}

}  // namespace

result<void> check_data(const json& data, const tensor& what) {
    if (!has_json_form(what.type)) return no_json_form(what);
    if (!flat_like(data, what) && !nested_like(data, what, 0))
        return refusal(status::invalid_argument, "the data are not the " + std::to_string(count_of(what)) +
                                                     " elements of the shape, flat or nested like it");
    const bool good = with_element(what.type, [&](auto element) { return all_fit<decltype(element)>(data); });
    if (good) return {};
    return refusal(status::invalid_argument, "a value of the data is no " + std::string{name_of(what.type)});
}

void write_data(const json& data, const tensor& what, std::span<std::byte> to) {
    if (data.is_string()) return write_text(data.get_ref<const std::string&>(), to);
    with_element(what.type, [&](auto element) { write_all<decltype(element)>(data, to.data()); });
}

result<void> append_data(std::string& to, const tensor& what, std::span<const std::byte> elements) {
    if (!has_json_form(what.type)) return no_json_form(what);
    const bool good =
        with_element(what.type, [&](auto element) { return append_all<decltype(element)>(to, elements); });
    if (good) return {};
    return refusal(status::invalid_argument,
                   "a number is infinite or none, which JSON cannot say: ask for binary data");
}

}  // namespace accel::examples::serving::oip
