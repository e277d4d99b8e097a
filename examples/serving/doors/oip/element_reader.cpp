// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/oip/element_reader.hpp"

#include "serving/doors/oip/element_types.hpp"
#include "serving/doors/oip/json_text.hpp"
#include "serving/doors/oip/refusal.hpp"
#include "serving/doors/oip/strings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

namespace accel::examples::serving::oip {
namespace {

bool is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::size_t digits_at(std::string_view text, std::size_t at) {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
}

/// Behind the digits; nothing moves where there are none. False: there are none.
bool take_digits(std::string_view text, std::size_t& at) {
    const std::size_t count = digits_at(text, at);
    at += count;
    return count > 0;
}

/// How a token is a number of JSON's grammar.
enum class number_form : std::uint8_t { none, integer, real };

number_form form_of(std::string_view token) {
    std::size_t at = token.starts_with('-') ? 1 : 0;
    const std::size_t begin = at;
    if (!take_digits(token, at) || (token[begin] == '0' && at > begin + 1)) return number_form::none;
    if (at == token.size()) return number_form::integer;
    if (token[at] == '.' && !take_digits(token, ++at)) return number_form::none;
    if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
        ++at;
        if (at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
        if (!take_digits(token, at)) return number_form::none;
    }
    return at == token.size() ? number_form::real : number_form::none;
}

/// Of a token in JSON's grammar; infinite where it is beyond the type.
double double_of(std::string_view token) {
    double out = 0;
    const auto read = std::from_chars(token.data(), token.data() + token.size(), out);
    // This does not tell too small from too large.
    return read.ec == std::errc{} ? out : std::strtod(std::string{token}.c_str(), nullptr);
}

template <class Element>
bool number_of_token(std::string_view token, Element& to) {
    const number_form form = form_of(token);
    if constexpr (std::is_same_v<Element, bool>) {
        to = token == "true" || token == "1";
        return to || token == "false" || token == "0";
    } else if constexpr (std::is_same_v<Element, fp16> || std::is_same_v<Element, bf16>) {
        const auto nearest = Element::of(form == number_form::none ? 0 : double_of(token));
        to = nearest.value_or(Element{});
        return form != number_form::none && nearest.has_value();
    } else if constexpr (std::is_floating_point_v<Element>) {
        const double value = form == number_form::none ? 0 : double_of(token);
        to = static_cast<Element>(value);
        return form != number_form::none && std::isfinite(to);
    } else {
        const auto read = std::from_chars(token.data(), token.data() + token.size(), to);
        const bool minus_zero = std::is_unsigned_v<Element> && token == "-0";
        if (minus_zero) to = 0;
        return form == number_form::integer && (minus_zero || read.ec == std::errc{});
    }
}

template <class Element>
bool write_number(std::string_view token, std::byte* to) {
    Element value{};
    const bool good = number_of_token(token, value);
    std::memcpy(to, &value, sizeof value);
    return good;
}

bool ends_token(char c) {
    return is_blank(c) || c == ',' || c == ']' || c == '[' || c == '{' || c == '}' || c == '"' || c == ':';
}

bool is_plain(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
}

}  // namespace

element_reader::element_reader(std::string_view text, const tensor& what, bool strings, std::uint64_t max_bytes)
    : text_(text), what_(what), count_(count_of(what)), max_bytes_(max_bytes) {
    if (!strings)
        write_ = with_element(what.type, [](auto element) -> number_writer { return write_number<decltype(element)>; });
    // A shape may promise more elements than there can be: each has a character, and a comma but for the last.
    if (!strings && count_ <= text.size() / 2 + 1) bytes_.resize(size_bytes(what));
}

result<bool> element_reader::step(std::size_t characters) {
    const std::size_t end = at_ + std::min(characters, text_.size() - at_);
    while (at_ < text_.size()) {
        if (is_blank(text_[at_]))
            ++at_;
        else if (const mistake found = take_next(); found != mistake::none)
            return sentence_of(found);
        if (at_ >= end && at_ < text_.size()) return true;
    }
    if (depth_ == 0 && !value_follows_ && elements_ == count_) return false;
    return sentence_of(mistake::shape);
}

element_reader::mistake element_reader::take_next() {
    const char c = text_[at_];
    if (value_follows_) return c == '[' ? open() : take_element();
    if (depth_ == 0) return mistake::shape;
    if (c == ']') return close();
    value_follows_ = c == ',';
    ++at_;
    return value_follows_ ? mistake::none : mistake::element;
}

element_reader::mistake element_reader::open() {
    if (depth_ > max_tensor_rank) return mistake::shape;
    inside_[++depth_] = 0;
    ++at_;
    return mistake::none;
}

element_reader::mistake element_reader::close() {
    const bool nested = leaf_depth_ == what_.rank;
    if (nested && inside_[depth_] != what_.shape[depth_ - 1]) return mistake::shape;
    ++inside_[--depth_];
    ++at_;
    return mistake::none;
}

/// The first element says whether the value is flat or nested, and the others are as deep.
bool element_reader::is_placed_well() {
    if (elements_ == 0) leaf_depth_ = depth_;
    const bool wanted = leaf_depth_ == what_.rank || leaf_depth_ == 1;
    return wanted && depth_ == leaf_depth_ && elements_ < count_;
}

element_reader::mistake element_reader::take_element() {
    if (text_[at_] == ']' || text_[at_] == '{' || !is_placed_well()) return mistake::shape;
    const mistake found = write_ == nullptr ? take_text() : take_number();
    ++inside_[depth_];
    ++elements_;
    value_follows_ = false;
    return found;
}

element_reader::mistake element_reader::take_number() {
    std::size_t end = at_;
    while (end < text_.size() && !ends_token(text_[end])) ++end;
    const std::string_view token = text_.substr(at_, end - at_);
    const std::size_t bytes = what_.type.bits / 8U;
    if (bytes_.empty()) return mistake::shape;
    if (!write_(token, bytes_.data() + elements_ * bytes)) return mistake::element;
    at_ = end;
    return mistake::none;
}

element_reader::mistake element_reader::take_text() {
    const std::size_t end = text_[at_] == '"' ? end_of_string(text_, at_) : text_.size() + 1;
    if (end > text_.size()) return mistake::element;
    const std::string_view literal = text_.substr(at_, end - at_);
    const std::string_view inner = literal.substr(1, literal.size() - 2);
    at_ = end;
    if (is_plain(inner)) {
        append_string(bytes_, inner);
    } else {
        const auto read = read_string(literal);
        if (!read) return mistake::element;
        append_string(bytes_, read.value());
    }
    return bytes_.size() > max_bytes_ ? mistake::too_long : mistake::none;
}

error element_reader::sentence_of(mistake what) const {
    switch (what) {
        case mistake::element:
            return refusal(status::invalid_argument,
                           write_ == nullptr
                               ? "an element of the data is not a string of UTF-8"
                               : "a value of the data is not a valid " + std::string{name_of(what_.type)});
        case mistake::too_long:
            return refusal(status::invalid_argument,
                           "the strings have more than " + std::to_string(max_bytes_) + " bytes, with their lengths");
        default:
            return refusal(status::invalid_argument, "the data does not have the " + std::to_string(count_) +
                                                         " elements of the shape, flat or nested in the same way");
    }
}

result<std::vector<std::byte>> read_elements(std::string_view text, const tensor& what, bool strings,
                                             std::uint64_t max_bytes) {
    element_reader reader{text, what, strings, max_bytes};
    const auto more = reader.step(text.size());
    if (!more) return more.error();
    return std::move(reader.bytes());
}

std::uint64_t count_elements(std::string_view text) noexcept {
    std::uint64_t out = 1;
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] == '"') at = end_of_string(text, at) - 1;
        if (at < text.size() && text[at] == ',') ++out;
    }
    return out;
}

result<std::string> read_string(std::string_view text) {
    const nlohmann::json read = nlohmann::json::parse(text, nullptr, false);
    if (read.is_string()) return read.get<std::string>();
    return refusal(status::invalid_argument, "it must be a string, in quotes");
}

}  // namespace accel::examples::serving::oip
