// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/element_writer.hpp"

#include "serving/doors/oip/checks.hpp"
#include "serving/doors/oip/data_types.hpp"
#include "serving/doors/oip/element_types.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

template <class Element>
bool append_value(std::string& to, Element value) {
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

template <int Fraction, int Bias>
bool append_value(std::string& to, half_number<Fraction, Bias> value) {
    return append_value(to, value.value());
}

template <class Element>
bool append_first(std::string& to, std::span<const std::byte>& from) {
    Element value{};
    // A boolean's byte may be any: a peer wrote it.
    if constexpr (std::is_same_v<Element, bool>)
        value = from.front() != std::byte{0};
    else
        std::memcpy(&value, from.data(), sizeof value);
    from = from.subspan(sizeof value);
    return append_value(to, value);
}

bool append_first_string(std::string& to, std::span<const std::byte>& from) {
    const std::string_view element = take_string(from);
    try {
        to += nlohmann::json(element).dump();
        return true;
    } catch (const nlohmann::json::type_error&) {  // no UTF-8
        return false;
    }
}

}  // namespace

element_writer::element_writer(const tensor& what, bool strings, std::span<const std::byte> elements)
    : type_(what.type), strings_(strings), left_(elements) {
    if (strings)
        append_ = append_first_string;
    else
        append_ = with_element(type_, [](auto element) -> appender { return append_first<decltype(element)>; });
}

result<bool> element_writer::step(std::size_t characters, std::string& to) {
    const std::size_t end = to.size() + characters;
    if (!begun_) to += '[';
    while (!left_.empty()) {
        if (begun_) to += ',';
        begun_ = true;
        if (!append_(to, left_))
            return refusal(status::invalid_argument,
                           strings_ ? "a string is not UTF-8, which JSON requires: ask for binary data"
                                    : "a number is infinite or NaN, which JSON cannot represent: ask for binary data");
        if (to.size() >= end && !left_.empty()) return true;
    }
    to += ']';
    return false;
}

result<void> append_elements(std::string& to, const tensor& what, bool strings, std::span<const std::byte> elements) {
    const auto more = element_writer{what, strings, elements}.step(std::numeric_limits<std::int32_t>::max(), to);
    if (!more) return more.error();
    return {};
}

std::uint64_t longest_json(const tensor& what, bool strings) noexcept {
    constexpr std::uint64_t longest_escape = 6;  // \u0000
    if (strings) return size_bytes(what) * longest_escape;
    // The sign, the digits, of real ones a point and an exponent, and a comma.
    const bool real = what.type.code == type_code::floating || what.type.code == type_code::bfloat;
    const std::uint64_t longest = real ? (what.type.bits <= 32 ? 16 : 25) : (what.type.bits <= 16 ? 7 : 21);
    return count_of(what) * longest;
}

}  // namespace accel::examples::serving::oip
