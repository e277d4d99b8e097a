// SPDX-License-Identifier: Apache-2.0
#include "core/tls/key_file.hpp"

#include "core/net/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::core {
namespace {

constexpr std::string_view key_prefix = "ed25519:";
constexpr std::size_t key_characters = 43;
constexpr std::size_t max_file_bytes = 1 << 20;
constexpr std::string_view base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

error file_error(const char* what, const std::filesystem::path& path, int native) {
    return {status::system_error, native,
            fmt::format("cannot {} '{}': {}", what, path.string(), std::strerror(native))};
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// A pipe or a device would keep the caller waiting.
unique_fd open_at_once(const std::filesystem::path& path) {
    return unique_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

result<std::string> read_all(int fd, const std::filesystem::path& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return file_error("inspect", path, errno);
    if (static_cast<std::size_t>(info.st_size) > max_file_bytes || !S_ISREG(info.st_mode))
        return error{status::unauthorized, 0,
                     fmt::format("'{}' is not a regular file of at most 1 MiB; name the key file", path.string())};
    // One allocation, so that no copy of a secret stays behind.
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t got = ::read(fd, text.data() + filled, text.size() - filled);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error("read", path, errno);
        if (got == 0) break;
        filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
    return text;
}

/// The rights that nobody but a file's owner may have.
struct file_rule {
    mode_t forbidden;
    const char* done_by_others;
    const char* remedy;
};
constexpr file_rule secret_file{077, "read", "600"};
/// A user who can write a file of trusted keys can let anybody in.
constexpr file_rule trusted_file{022, "changed", "go-w"};

/// As Kubernetes mounts secrets for a group (fsGroup): nobody can write them, and the group can read them.
bool is_mounted_secret(const struct stat& info) noexcept {
    return info.st_uid == 0 && (info.st_mode & 0237) == 0;
}

/// Whoever may write a folder can put another file in the place of any in it, but for the sticky bit. A user's private
/// group has his number (Debian, Ubuntu), and nobody else in it.
result<void> check_folder(const std::filesystem::path& path, std::string_view option) {
    std::error_code failure;
    const std::filesystem::path folder = std::filesystem::canonical(path, failure).parent_path();
    struct stat info {};
    if (failure) return file_error("find", path, failure.value());
    if (::stat(folder.c_str(), &info) != 0) return file_error("inspect the folder of", path, errno);
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
        return error{
            status::unauthorized, 0,
            fmt::format("{} '{}' is in a folder of another user, who could replace it; move it, or run: chown {} '{}'",
                        option, path.string(), ::geteuid(), folder.string())};
    const mode_t others = info.st_gid == info.st_uid ? 002 : 022;
    const bool shared = (info.st_mode & others) != 0 && (info.st_mode & S_ISVTX) == 0;
    if (!shared) return {};
    return error{
        status::unauthorized, 0,
        fmt::format("{} '{}' is in a folder in which other users could replace it (mode {:04o}); run: chmod go-w '{}'",
                    option, path.string(), info.st_mode & 07777U, folder.string())};
}

result<void> check_mode(int fd, const std::filesystem::path& path, std::string_view option, const file_rule& rule) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return file_error("inspect", path, errno);
    if (is_mounted_secret(info)) return {};
    if (info.st_uid != ::geteuid() && info.st_uid != 0)
        return error{status::unauthorized, 0,
                     fmt::format("{} '{}' belongs to another user; run: chown {} '{}'", option, path.string(),
                                 ::geteuid(), path.string())};
    if ((info.st_mode & rule.forbidden) == 0) return {};
    return error{status::unauthorized, 0,
                 fmt::format("{} '{}' can be {} by others (mode {:04o}); run: chmod {} '{}'", option, path.string(),
                             rule.done_by_others, info.st_mode & 07777U, rule.remedy, path.string())};
}

/// The text of the file that an option names.
result<std::string> read_checked(const std::filesystem::path& path, std::string_view option, const file_rule& rule,
                                 std::string_view advice = {}) {
    const unique_fd file = open_at_once(path);
    if (!file.open()) {
        const int native = errno;
        return error{status::unauthorized, native,
                     fmt::format("cannot read {} '{}': {}{}", option, path.string(), std::strerror(native),
                                 native == ENOENT ? advice : "")};
    }
    if (auto checked = check_mode(file.get(), path, option, rule); !checked) return checked.error();
    if (auto checked = check_folder(path, option); !checked) return checked.error();
    return read_all(file.get(), path);
}

/// A temporary file that gets its final name only when it is complete.
class new_file {
  public:
    new_file(std::string path, mode_t mode) : path_(std::move(path)), temporary_(path_ + ".new") {
        ::unlink(temporary_.c_str());
        fd_ = unique_fd(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
    }
    new_file(const new_file&) = delete;
    new_file& operator=(const new_file&) = delete;
    ~new_file() {
        if (fd_.open()) ::unlink(temporary_.c_str());
    }

    result<void> write(std::string_view text, mode_t mode) {
        if (!fd_.open()) return file_error("write", path_, errno);
        while (!text.empty()) {
            const ssize_t put = ::write(fd_.get(), text.data(), text.size());
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) return file_error("write", path_, errno);
            text.remove_prefix(static_cast<std::size_t>(put));
        }
        if (::fchmod(fd_.get(), mode) != 0) return file_error("set the mode of", path_, errno);
        if (::fsync(fd_.get()) != 0) return file_error("write", path_, errno);
        return {};
    }
    result<void> publish(bool overwrite) {
        if (overwrite) {
            if (::rename(temporary_.c_str(), path_.c_str()) != 0) return file_error("write", path_, errno);
            fd_.reset();
            return {};
        }
        // A link does not replace what exists.
        if (::link(temporary_.c_str(), path_.c_str()) == 0) return {};
        if (errno != EEXIST) return file_error("write", path_, errno);
        return error{status::invalid_state, EEXIST,
                     fmt::format("'{}' exists already; choose another name, or replace it with --force", path_)};
    }

  private:
    std::string path_;
    std::string temporary_;
    unique_fd fd_;
};

result<secret_text> private_pem(EVP_PKEY* key) {
    const bio_ptr memory(BIO_new(BIO_s_secmem()));
    if (!memory || PEM_write_bio_PKCS8PrivateKey(memory.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
        return error{status::system_error, 0, fmt::format("cannot write the key: {}", openssl_failure())};
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory.get(), &data);
    return secret_text(std::string(data, static_cast<std::size_t>(size)));
}

/// A pass phrase cannot be asked for.
int no_pass_phrase(char*, int, int, void*) {
    return -1;
}

/// The key in a file as accel_keys and `openssl genpkey` write it: a PEM block whose last 32 bytes are the
/// key (RFC 8410, section 7). OpenSSL's general decoder takes about a millisecond for the same.
pkey_ptr parse_ed25519_pem(std::string_view text) {
    constexpr std::array<unsigned char, 16> prefix{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                                   0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
    constexpr std::size_t key_bytes = 32;
    const bio_ptr memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    char* name = nullptr;
    char* header = nullptr;
    unsigned char* data = nullptr;
    long size = 0;
    if (!memory || PEM_read_bio(memory.get(), &name, &header, &data, &size) != 1) return {};
    pkey_ptr key;
    if (std::string_view(name) == PEM_STRING_PKCS8INF && size == long{prefix.size() + key_bytes} &&
        std::equal(prefix.begin(), prefix.end(), data))
        key.reset(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, data + prefix.size(), key_bytes));
    OPENSSL_clear_free(data, static_cast<std::size_t>(size));
    OPENSSL_free(header);
    OPENSSL_free(name);
    return key;
}

/// A key of any kind that OpenSSL knows. Null: there is none, or it needs a pass phrase.
pkey_ptr parse_private_key(std::string_view text) {
    if (pkey_ptr key = parse_ed25519_pem(text)) return key;
    const bio_ptr memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    pkey_ptr key(memory ? PEM_read_bio_PrivateKey(memory.get(), nullptr, no_pass_phrase, nullptr) : nullptr);
    ERR_clear_error();
    return key;
}

}  // namespace

std::string openssl_failure() {
    const unsigned long code = ERR_get_error();
    ERR_clear_error();
    const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
    return reason != nullptr ? reason : "unknown OpenSSL failure";
}

secret_text::~secret_text() {
    OPENSSL_cleanse(text_.data(), text_.size());
}

std::string public_key::text() const {
    std::string out{key_prefix};
    std::uint32_t bits = 0;
    int count = 0;
    for (const std::uint8_t byte : bytes) {
        bits = bits << 8 | byte;
        for (count += 8; count >= 6; count -= 6) out += base64url[bits >> (count - 6) & 63U];
    }
    out += base64url[bits << (6 - count) & 63U];
    return out;
}

std::optional<public_key> parse_public_key(std::string_view text) noexcept {
    if (!text.starts_with(key_prefix)) return std::nullopt;
    text.remove_prefix(key_prefix.size());
    if (text.size() != key_characters) return std::nullopt;
    public_key out;
    std::uint32_t bits = 0;
    int count = 0;
    std::size_t filled = 0;
    for (const char each : text) {
        const auto value = base64url.find(each);
        if (value == std::string_view::npos) return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(value);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out.bytes[filled++] = static_cast<std::uint8_t>(bits >> count);
    }
    const bool no_bits_over = (bits & ((1U << count) - 1)) == 0;
    return no_bits_over ? std::optional{out} : std::nullopt;
}

std::optional<public_key> public_half(const EVP_PKEY* key) noexcept {
    public_key out;
    std::size_t length = out.bytes.size();
    const bool taken = key != nullptr && EVP_PKEY_is_a(key, "ED25519") == 1 &&
                       EVP_PKEY_get_raw_public_key(key, out.bytes.data(), &length) == 1 && length == out.bytes.size();
    return taken ? std::optional{out} : std::nullopt;
}

result<pkey_ptr> make_private_key() {
    pkey_ptr made(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    if (made) return made;
    return error{status::system_error, 0, fmt::format("OpenSSL cannot make an Ed25519 key: {}", openssl_failure())};
}

result<void> write_key_files(const std::string& name, EVP_PKEY* key, bool overwrite) {
    const auto half = public_half(key);
    if (!half) return error{status::invalid_argument, 0, "only Ed25519 keys can be written"};
    auto pem = private_pem(key);
    if (!pem) return pem.error();
    const std::string label = std::filesystem::path(name).filename().string();
    new_file secret(name + ".key", 0600);
    new_file open(name + ".pub", 0644);
    if (auto written = secret.write(pem->view(), 0600); !written) return written;
    if (auto written = open.write(fmt::format("{} {}\n", half->text(), label), 0644); !written) return written;
    // Both are checked first, so that a refusal writes neither.
    for (const char* ending : {".key", ".pub"}) {
        if (struct stat info{}; !overwrite && ::stat((name + ending).c_str(), &info) == 0)
            return error{
                status::invalid_state, EEXIST,
                fmt::format("'{}{}' exists already; choose another name, or replace it with --force", name, ending)};
    }
    if (auto published = secret.publish(overwrite); !published) return published;
    return open.publish(overwrite);
}

result<pkey_ptr> read_private_key(const std::filesystem::path& path) {
    auto text = read_checked(path, "key_file", secret_file, "; make a key pair with accel_keys");
    if (!text) return text.error();
    const secret_text secret(std::move(*text));
    if (pkey_ptr key = parse_private_key(secret.view())) return key;
    return error{
        status::unauthorized, 0,
        fmt::format(
            "key_file '{}' does not contain a private key without a pass phrase; name the .key file that accel_keys "
            "wrote",
            path.string())};
}

result<std::string> read_trusted_file(const std::filesystem::path& path, std::string_view option) {
    auto text = read_checked(path, option, trusted_file);
    if (!text) return text;
    if (text->find("PRIVATE KEY-----") != std::string::npos)
        return error{status::unauthorized, 0,
                     fmt::format("{} '{}' is a private key, which stays with its owner; name the .pub file", option,
                                 path.string())};
    return text;
}

result<public_key> read_server_key(const std::string& text_or_path) {
    if (const auto key = parse_public_key(text_or_path)) return *key;
    if (text_or_path.starts_with(key_prefix))
        return error{
            status::unauthorized, 0,
            fmt::format("server_key '{}' is not a valid key: expected 43 characters of base64url after 'ed25519:'",
                        text_or_path)};
    auto text = read_trusted_file(text_or_path, "server_key");
    if (!text) return text.error();
    const std::string_view line = trimmed(*text);
    if (const auto key = parse_public_key(line.substr(0, line.find_first_of(" \t\r\n")))) return *key;
    return error{status::unauthorized, 0,
                 fmt::format("server_key '{}' does not contain a public key; name the .pub file that accel_keys wrote",
                             text_or_path)};
}

result<std::vector<public_key>> read_authorized_keys(const std::filesystem::path& path) {
    auto text = read_trusted_file(path, "authorized_keys");
    if (!text) return text.error();
    return parse_authorized_keys(*text, path);
}

result<std::vector<public_key>> parse_authorized_keys(std::string_view text, const std::filesystem::path& path) {
    std::vector<public_key> keys;
    for (int number = 1; !text.empty(); ++number) {
        const auto end = text.find('\n');
        const std::string_view line = trimmed(text.substr(0, end));
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
        if (line.empty() || line.starts_with('#')) continue;
        const auto key = parse_public_key(line.substr(0, line.find_first_of(" \t")));
        if (!key)
            return error{status::unauthorized, 0,
                         fmt::format("line {} of authorized_keys '{}' is not a valid public key: expected 'ed25519:' "
                                     "and 43 characters",
                                     number, path.string())};
        keys.push_back(*key);
    }
    return keys;
}

namespace {

std::optional<public_key> key_in_pem(std::string_view text) {
    if (const pkey_ptr key = parse_private_key(text)) return public_half(key.get());
    const bio_ptr public_text(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    const x509_ptr certificate(PEM_read_bio_X509(public_text.get(), nullptr, nullptr, nullptr));
    ERR_clear_error();
    return certificate ? public_half(X509_get0_pubkey(certificate.get())) : std::nullopt;
}

/// The base64 of OpenSSH's holds, each behind its length of 4 bytes, "ssh-ed25519" and the 32 bytes of the
/// key (RFC 8709).
std::optional<public_key> key_in_ssh_line(std::string_view line) {
    constexpr std::string_view kind = "ssh-ed25519 ";
    constexpr std::size_t characters = 68;
    constexpr std::size_t key_at = 4 + 11 + 4;
    if (!line.starts_with(kind) || line.size() < kind.size() + characters) return std::nullopt;
    std::array<unsigned char, characters / 4 * 3> decoded{};
    const auto* text = reinterpret_cast<const unsigned char*>(line.data() + kind.size());
    if (EVP_DecodeBlock(decoded.data(), text, characters) != static_cast<int>(decoded.size())) return std::nullopt;
    public_key out;
    std::copy_n(decoded.begin() + key_at, out.bytes.size(), out.bytes.begin());
    return out;
}

}  // namespace

result<public_key> public_key_of_file(const std::filesystem::path& path) {
    const unique_fd file = open_at_once(path);
    if (!file.open()) return file_error("read", path, errno);
    auto text = read_all(file.get(), path);
    if (!text) return text.error();
    const secret_text whole(std::move(*text));
    const std::string_view line = trimmed(whole.view());
    if (const auto key = parse_public_key(line.substr(0, line.find_first_of(" \t\r\n")))) return *key;
    if (const auto key = key_in_ssh_line(line)) return *key;
    if (const auto key = key_in_pem(line)) return *key;
    return error{status::invalid_argument, 0, fmt::format("'{}' does not contain an Ed25519 key", path.string())};
}

}  // namespace accel::core
