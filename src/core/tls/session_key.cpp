// SPDX-License-Identifier: Apache-2.0
#include "core/tls/session_key.hpp"

#include <cstring>
#include <string_view>

#include <openssl/crypto.h>
#include <openssl/sha.h>

namespace accel::core {
namespace {

using derived_key = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

/// A separate key, so that values derived from it reveal nothing of the token.
derived_key derive(const session_key& from) noexcept {
    constexpr std::string_view label = "accel data connection";
    std::array<unsigned char, label.size() + sizeof from.session_id + sizeof from.token> all{};
    std::memcpy(all.data(), label.data(), label.size());
    std::memcpy(all.data() + label.size(), &from.session_id, sizeof from.session_id);
    std::memcpy(all.data() + label.size() + sizeof from.session_id, from.token.data(), from.token.size());
    derived_key out{};
    SHA256(all.data(), all.size(), out.data());
    OPENSSL_cleanse(all.data(), all.size());
    return out;
}

const SSL_CIPHER* first_suite(SSL* of) noexcept {
    constexpr std::array<unsigned char, 2> tls_aes_128_gcm_sha256{0x13, 0x01};
    return SSL_CIPHER_find(of, tls_aes_128_gcm_sha256.data());
}

}  // namespace

SSL_SESSION* make_pre_shared_key(SSL* of, const session_key& key) noexcept {
    SSL_SESSION* made = SSL_SESSION_new();
    if (made == nullptr) return nullptr;
    derived_key secret = derive(key);
    const bool whole = SSL_SESSION_set1_master_key(made, secret.data(), secret.size()) == 1 &&
                       SSL_SESSION_set_cipher(made, first_suite(of)) == 1 &&
                       SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(secret.data(), secret.size());
    if (whole) return made;
    SSL_SESSION_free(made);
    return nullptr;
}

}  // namespace accel::core
