// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/access/tokens.hpp"

#include "serving/doors/access/private_file.hpp"

#include <algorithm>

#include <openssl/crypto.h>
#include <strings.h>

namespace accel::examples::serving::access {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::string_view scheme = "Bearer ";

std::string_view without_blanks(std::string_view text) noexcept {
    const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

bool is_token(std::string_view text) noexcept {
    const auto visible = [](char c) { return c > ' ' && c < '\x7f'; };
    return !text.empty() && text.size() <= token_list::longest && std::ranges::all_of(text, visible);
}

error no_tokens(const std::string& why) {
    return {.code = status::invalid_argument, .native = 0, .message = why};
}

}  // namespace

result<token_list> token_list::parse(std::string_view text) {
    token_list out;
    for (std::size_t line = 1; !text.empty(); ++line) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view one = without_blanks(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (one.empty() || one.front() == '#') continue;
        if (!is_token(one))
            return no_tokens("line " + std::to_string(line) +
                             " is not a valid token: expected up to 256 visible ASCII "
                             "characters");
        std::ranges::copy(one, out.tokens_.emplace_back().begin());
    }
    if (out.empty()) return no_tokens("the file has no tokens: write one per line");
    return out;
}

result<token_list> token_list::read(const std::string& path) {
    const auto text = read_private_file(path);
    if (!text) return text.error();
    auto out = parse(text.value());
    if (!out) return no_tokens(path + ": " + out.error().message);
    return out;
}

bool token_list::allow(std::string_view field) const noexcept {
    if (empty()) return true;
    if (field.size() < scheme.size() || strncasecmp(field.data(), scheme.data(), scheme.size()) != 0) return false;
    const std::string_view given = without_blanks(field.substr(scheme.size()));
    if (!is_token(given)) return false;
    padded one{};
    std::ranges::copy(given, one.begin());
    bool known = false;
    // All of them, so that the time does not tell which one it was.
    for (const padded& each : tokens_) known = (CRYPTO_memcmp(each.data(), one.data(), longest) == 0) || known;
    return known;
}

}  // namespace accel::examples::serving::access
