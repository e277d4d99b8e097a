#pragma once

#include <accel_transport/status.hpp>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

/// Key files are ZeroMQ certificates: lines `public-key = "…"` and `secret-key = "…"` in Z85, comments start
/// with '#'.
namespace accel::core {

struct key_pair {
    std::string public_key;  ///< Z85, 40 characters
    std::string secret_key;  ///< Z85, 40 characters
};

/// 40 characters of Z85.
[[nodiscard]] bool is_key(std::string_view text) noexcept;

/// `unsupported` where ZeroMQ was built without CURVE. The public key never starts with '#'.
[[nodiscard]] result<key_pair> make_key_pair();

/// Writes NAME.key (mode 0600) and NAME.pub. `invalid_state` if one exists and `overwrite` is not set.
[[nodiscard]] result<void> write_key_files(const std::string& name, const key_pair& keys, bool overwrite);

/// A private key file. `unauthorized` if others than its owner may read it, or its halves do not match.
[[nodiscard]] result<key_pair> read_key_file(const std::filesystem::path& path);

/// A key as text, or the path of a file that holds a public key.
[[nodiscard]] result<std::string> read_public_key(const std::string& text_or_path);

/// One key a line, as bare Z85 (anything after a blank is a name) or `public-key = "…"`; so .pub files can be
/// appended.
[[nodiscard]] result<std::vector<std::string>> read_authorized_keys(const std::filesystem::path& path);

}  // namespace accel::core
