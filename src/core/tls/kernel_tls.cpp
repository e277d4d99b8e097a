// SPDX-License-Identifier: Apache-2.0
#include "core/tls/kernel_tls.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <sys/socket.h>

// From linux/tls.h and sys/socket.h, for older systems.
#ifndef SOL_TLS
#define SOL_TLS 282
#endif

namespace accel::core {
namespace {

struct suite {
    std::uint16_t number;  ///< RFC 8446, appendix B.4
    std::size_t key_bytes;
    const char* hash;
};
constexpr std::array suites{suite{0x1301, 16, "SHA256"}, suite{0x1302, 32, "SHA384"}};

const suite* suite_of(const SSL* ssl) noexcept {
    const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl);
    const auto* found = std::find_if(suites.begin(), suites.end(), [&](const suite& each) {
        return cipher != nullptr && SSL_CIPHER_get_protocol_id(cipher) == each.number;
    });
    return found == suites.end() ? nullptr : found;
}

/// HKDF-Expand-Label without context (RFC 8446, section 7.1).
bool expand(const suite& with, const traffic_secret& secret, std::string_view label, std::span<unsigned char> out) {
    const std::string_view prefix = "tls13 ";
    std::array<unsigned char, 32> info{};
    std::size_t used = 0;
    info[used++] = static_cast<unsigned char>(out.size() >> 8U);
    info[used++] = static_cast<unsigned char>(out.size());
    info[used++] = static_cast<unsigned char>(prefix.size() + label.size());
    for (const std::string_view part : {prefix, label})
        for (const char each : part) info[used++] = static_cast<unsigned char>(each);
    ++used;  // no context

    EVP_KDF* method = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
    EVP_KDF_CTX* context = EVP_KDF_CTX_new(method);
    EVP_KDF_free(method);
    if (context == nullptr) return false;
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    const std::array parameters{
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, const_cast<char*>(with.hash), 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<unsigned char*>(secret.bytes.data()),
                                          secret.length),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), used),
        OSSL_PARAM_construct_end(),
    };
    const bool derived = EVP_KDF_derive(context, out.data(), out.size(), parameters.data()) == 1;
    EVP_KDF_CTX_free(context);
    return derived;
}

/// As the OS has it: the first 4 bytes of TLS 1.3's nonce are the "salt", the others the "iv".
template <class Info>
bool give_keys(int fd, std::uint16_t cipher, const record_keys& keys) noexcept {
    Info info{};
    info.info.version = TLS_1_3_VERSION;
    info.info.cipher_type = cipher;
    static_assert(sizeof info.salt + sizeof info.iv == sizeof keys.iv);
    std::memcpy(info.salt, keys.iv.data(), sizeof info.salt);
    std::memcpy(info.iv, keys.iv.data() + sizeof info.salt, sizeof info.iv);
    std::memcpy(info.key, keys.key.data(), sizeof info.key);
    for (std::size_t i = 0; i < sizeof info.rec_seq; ++i)
        info.rec_seq[i] = static_cast<unsigned char>(keys.sequence >> (8 * (sizeof info.rec_seq - 1 - i)));
    const bool taken = ::setsockopt(fd, SOL_TLS, TLS_TX, &info, sizeof info) == 0;
    OPENSSL_cleanse(&info, sizeof info);
    return taken;
}

bool give_keys(int fd, const record_keys& keys) noexcept {
    return keys.key_bytes == 16 ? give_keys<tls12_crypto_info_aes_gcm_128>(fd, TLS_CIPHER_AES_GCM_128, keys)
                                : give_keys<tls12_crypto_info_aes_gcm_256>(fd, TLS_CIPHER_AES_GCM_256, keys);
}

/// A kernel without the module is tried once a process: each try may start modprobe.
bool attach_module(int fd) noexcept {
    static std::atomic<bool> missing{false};
    constexpr std::string_view name = "tls";
    if (missing.load(std::memory_order_relaxed)) return false;
    if (::setsockopt(fd, IPPROTO_TCP, TCP_ULP, name.data(), name.size()) == 0) return true;
    if (errno == ENOENT || errno == ENOPROTOOPT) missing.store(true, std::memory_order_relaxed);
    return false;
}

}  // namespace

record_keys::~record_keys() {
    OPENSSL_cleanse(key.data(), key.size());
    OPENSSL_cleanse(iv.data(), iv.size());
}

std::optional<record_keys> next_record_keys(const tls_stream& of) {
    const suite* with = suite_of(of.get());
    const traffic_secret& secret = of.traffic().sending;
    if (with == nullptr || secret.length == 0) return std::nullopt;
    record_keys out;
    out.key_bytes = with->key_bytes;
    out.sequence = of.traffic().sent;
    if (!expand(*with, secret, "key", std::span(out.key).first(out.key_bytes)) || !expand(*with, secret, "iv", out.iv))
        return std::nullopt;
    return out;
}

bool let_kernel_encrypt(const tls_stream& stream, int fd) noexcept {
    if (!attach_module(fd)) return false;
    const auto keys = next_record_keys(stream);
    return keys && give_keys(fd, *keys);
}

}  // namespace accel::core
