// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/tls_stream.hpp"
#include "fuzz_target.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

namespace accel::tests {

/// Makes TLS 1.3 records (RFC 8446, section 5.2) of any type, size and padding, as a peer can that owns its keys.
class record_forge {
  public:
    static constexpr std::size_t most_content = std::size_t{1} << 14;
    static constexpr std::size_t header_bytes = 5;
    static constexpr std::size_t tag_bytes = 16;
    static constexpr std::size_t sha256_bytes = 32;

    /// Before its handshake: `stream` will know its secret, whatever its protocol is.
    static void watch(const core::tls_stream& stream) {
        SSL_CTX_set_keylog_callback(SSL_get_SSL_CTX(stream.get()), note);
    }
    /// After its handshake; from now on nothing else writes through it.
    explicit record_forge(const core::tls_stream& own) {
        const core::traffic_secret& mine = own.traffic().sending;
        require(mine.length == secret_.size(), "the first cipher suite was taken");
        std::copy_n(mine.bytes.begin(), secret_.size(), secret_.begin());
        set_keys();
    }

    /// What follows has the next keys, as after KeyUpdate.
    void renew() {
        secret_ = derive<sha256_bytes>("traffic upd");
        set_keys();
    }

    [[nodiscard]] std::vector<std::byte> seal(std::uint8_t type, std::span<const std::byte> content,
                                              std::size_t padding = 0) {
        std::vector<unsigned char> inner(content.size() + 1 + padding);
        std::transform(content.begin(), content.end(), inner.begin(),
                       [](std::byte each) { return std::to_integer<unsigned char>(each); });
        inner[content.size()] = type;
        const std::size_t length = inner.size() + tag_bytes;
        std::vector<unsigned char> out(header_bytes + length);
        out[0] = 23;  // application_data
        out[1] = out[2] = 3;
        out[3] = static_cast<unsigned char>(length >> 8U);
        out[4] = static_cast<unsigned char>(length);
        encrypt(inner, out);
        const auto bytes = std::as_bytes(std::span(out));
        return {bytes.begin(), bytes.end()};
    }

  private:
    static void note(const SSL* of, const char* line) {
        auto* notes = static_cast<core::traffic_notes*>(SSL_get_app_data(of));
        const std::string_view text = line;
        const std::string_view own = SSL_is_server(of) == 1 ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
        if (text.starts_with(own)) read(text, notes->sending);
    }
    static void read(std::string_view line, core::traffic_secret& out) {
        const std::string_view text = line.substr(line.rfind(' ') + 1);
        out.length = std::min(text.size() / 2, out.bytes.size());
        for (std::size_t i = 0; i < out.length; ++i)
            out.bytes[i] = static_cast<unsigned char>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
    }
    static int digit(char of) { return OPENSSL_hexchar2int(static_cast<unsigned char>(of)); }

    /// HKDF-Expand-Label without context (RFC 8446, section 7.1); one block is enough.
    template <std::size_t Bytes>
    [[nodiscard]] std::array<unsigned char, Bytes> derive(std::string_view label) const {
        std::vector<unsigned char> info{0, Bytes, static_cast<unsigned char>(6 + label.size())};
        for (const std::string_view part : {std::string_view("tls13 "), label})
            info.insert(info.end(), part.begin(), part.end());
        info.insert(info.end(), {0, 1});
        std::array<unsigned char, sha256_bytes> block{};
        HMAC(EVP_sha256(), secret_.data(), sha256_bytes, info.data(), info.size(), block.data(), nullptr);
        std::array<unsigned char, Bytes> out{};
        std::copy_n(block.begin(), Bytes, out.begin());
        return out;
    }
    void set_keys() {
        key_ = derive<16>("key");
        iv_ = derive<12>("iv");
        sequence_ = 0;
    }

    void encrypt(std::span<const unsigned char> inner, std::span<unsigned char> out) {
        std::array<unsigned char, 12> nonce = iv_;
        for (std::size_t i = 0; i < 8; ++i)
            nonce[nonce.size() - 1 - i] ^= static_cast<unsigned char>(sequence_ >> (8 * i));
        ++sequence_;
        const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(EVP_CIPHER_CTX_new(),
                                                                                     EVP_CIPHER_CTX_free);
        unsigned char* const body = out.data() + header_bytes;
        int length = 0;
        const bool sealed =
            EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_gcm(), nullptr, key_.data(), nonce.data()) == 1 &&
            EVP_EncryptUpdate(cipher.get(), nullptr, &length, out.data(), header_bytes) == 1 &&
            EVP_EncryptUpdate(cipher.get(), body, &length, inner.data(), static_cast<int>(inner.size())) == 1 &&
            EVP_EncryptFinal_ex(cipher.get(), body + length, &length) == 1 &&
            EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_AEAD_GET_TAG, tag_bytes, body + inner.size()) == 1;
        require(sealed, "a record is sealed");
    }

    std::array<unsigned char, sha256_bytes> secret_{};
    std::array<unsigned char, 16> key_{};
    std::array<unsigned char, 12> iv_{};
    std::uint64_t sequence_ = 0;
};

}  // namespace accel::tests
