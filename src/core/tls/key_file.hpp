// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tls/openssl.hpp"

#include <accel_transport/status.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Ed25519 keys (RFC 8032) and the files that hold them. A private key is a PEM file as OpenSSL writes it
/// (PKCS #8, RFC 8410). A public key is one line of text, as in SSH's authorized_keys: `ed25519:` and 43
/// characters of base64url (RFC 4648, section 5), then perhaps a blank and a name.
namespace accel::core {

/// A public key, comparable.
struct public_key {
    std::array<std::uint8_t, 32> bytes{};
    bool operator==(const public_key&) const = default;
    bool operator<(const public_key& other) const noexcept { return bytes < other.bytes; }
    /// "ed25519:…", 51 characters; needs no escaping in a URI.
    [[nodiscard]] std::string text() const;
};

/// Empty: this is not the text of a public key.
[[nodiscard]] std::optional<public_key> parse_public_key(std::string_view text) noexcept;
/// Empty: not an Ed25519 key.
[[nodiscard]] std::optional<public_key> public_half(const EVP_PKEY* key) noexcept;

[[nodiscard]] result<pkey_ptr> make_private_key();

/// Writes NAME.key (mode 0600) and NAME.pub (mode 0644), each as a whole or not at all. `invalid_state` if
/// one exists and `overwrite` is not set.
[[nodiscard]] result<void> write_key_files(const std::string& name, EVP_PKEY* key, bool overwrite);

/// Bytes of a file that holds a secret; wiped when dropped.
class secret_text {
  public:
    explicit secret_text(std::string text) noexcept : text_(std::move(text)) {}
    secret_text(secret_text&& other) noexcept : text_(std::move(other.text_)) {}
    secret_text& operator=(secret_text&&) = delete;
    ~secret_text();
    [[nodiscard]] std::string_view view() const noexcept { return text_; }

  private:
    std::string text_;
};

/// Reads a private key file. `unauthorized` if it is not its owner's alone, or holds no private key.
[[nodiscard]] result<pkey_ptr> read_private_key(const std::filesystem::path& path);
/// The text of a file of public content: keys, certificates. `unauthorized` if anybody may change it.
[[nodiscard]] result<std::string> read_trusted_file(const std::filesystem::path& path, std::string_view option);

/// `server_key`: a key as text, or the path of a .pub file.
[[nodiscard]] result<public_key> read_server_key(const std::string& text_or_path);
/// `authorized_keys`: one key a line; anything behind it is its name; '#' begins a comment.
[[nodiscard]] result<std::vector<public_key>> read_authorized_keys(const std::filesystem::path& path);
/// The same from text; `path` is for error sentences.
[[nodiscard]] result<std::vector<public_key>> parse_authorized_keys(std::string_view text,
                                                                    const std::filesystem::path& path);

/// The public key in a file of any kind: a private key or a certificate (PEM), a .pub file, or a line of OpenSSH's
/// (`ssh-ed25519 …`).
[[nodiscard]] result<public_key> public_key_of_file(const std::filesystem::path& path);

}  // namespace accel::core
