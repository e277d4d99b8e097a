// SPDX-License-Identifier: Apache-2.0
#include "serving/doors/http/door_access.hpp"

#include "serving/doors/access/private_file.hpp"
#include "serving/doors/http/tls.hpp"

#include <utility>

namespace accel::examples::serving::doors {
namespace {

result<void> read_tls(const choices& from, door_access& to) {
    auto certificate = access::read_trusted_file(from.certificate);
    if (!certificate) return certificate.error();
    auto key = access::read_private_file(from.key);
    if (!key) return key.error();
    to.certificate = std::move(certificate).value();
    to.key = std::move(key).value();
    auto tls = open_tls({from.certificate, to.certificate}, {from.key, to.key});
    if (!tls) return tls.error();
    to.tls = std::move(tls).value();
    return {};
}

}  // namespace

result<door_access> open_access(const choices& chosen) {
    door_access out;
    if (!chosen.certificate.empty())
        if (auto read = read_tls(chosen, out); !read) return read.error();
    if (chosen.tokens.empty()) return out;
    auto tokens = access::token_list::read(chosen.tokens);
    if (!tokens) return tokens.error();
    out.tokens = std::move(tokens).value();
    return out;
}

}  // namespace accel::examples::serving::doors
