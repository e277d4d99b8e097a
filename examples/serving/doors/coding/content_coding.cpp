// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/coding/content_coding.hpp"

#include <algorithm>

namespace accel::examples::serving::coding {
namespace {

constexpr int whole = 1000;  // a weight of 1

char lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_same(std::string_view a, std::string_view b) noexcept {
    return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) noexcept {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

/// Takes the text up to `end` away, and `end` with it.
std::string_view cut(std::string_view& from, char end) noexcept {
    const std::size_t at = std::min(from.find(end), from.size());
    const std::string_view out = from.substr(0, at);
    from.remove_prefix(std::min(at + 1, from.size()));
    return trimmed(out);
}

/// "q=0.5", in thousandths; what is none has the weight 0.
int weight_of(std::string_view parameter) noexcept {
    if (parameter.empty()) return whole;
    if (parameter.size() < 3 || lower(parameter[0]) != 'q' || parameter[1] != '=') return 0;
    int out = 0;
    int digit = whole;
    for (const char c : parameter.substr(2)) {
        if (c == '.') continue;
        if (c < '0' || c > '9' || digit == 0) return 0;
        out += (c - '0') * digit;
        digit /= 10;
    }
    return std::min(out, whole);
}

}  // namespace

std::optional<content_coding> coding_of(std::string_view name) noexcept {
    if (name.empty() || is_same(name, "identity")) return content_coding::identity;
    if (is_same(name, "gzip") || is_same(name, "x-gzip")) return content_coding::gzip;
    if (is_same(name, "deflate")) return content_coding::deflate;
    return std::nullopt;
}

std::string_view name_of(content_coding one) noexcept {
    if (one == content_coding::gzip) return "gzip";
    return one == content_coding::deflate ? "deflate" : "identity";
}

content_coding accepted_coding(std::string_view header) noexcept {
    content_coding best = content_coding::identity;
    int most = 0;
    while (!header.empty()) {
        std::string_view one = cut(header, ',');
        const auto coding = coding_of(cut(one, ';'));
        const int weight = weight_of(trimmed(one));
        if (!coding || *coding == content_coding::identity || weight == 0) continue;
        const bool better = weight > most || (weight == most && *coding == content_coding::gzip);
        if (better) best = *coding;
        most = std::max(most, weight);
    }
    return best;
}

}  // namespace accel::examples::serving::coding
