#include "core/control/key_file.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

namespace accel::core {
namespace {

constexpr std::size_t key_characters = 40;
constexpr std::size_t max_file_bytes = 1 << 20;

class file_handle {
  public:
    explicit file_handle(int fd) noexcept : fd_(fd) {}
    file_handle(const file_handle&) = delete;
    file_handle& operator=(const file_handle&) = delete;
    ~file_handle() {
        if (fd_ >= 0) ::close(fd_);
    }
    [[nodiscard]] int get() const noexcept { return fd_; }

  private:
    int fd_;
};

error file_error(const char* what, const std::filesystem::path& path, int native) {
    return {status::system_error, native,
            fmt::format("cannot {} '{}': {}", what, path.string(), std::strerror(native))};
}

result<std::string> read_all(const file_handle& file, const std::filesystem::path& path) {
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
        const ssize_t got = ::read(file.get(), part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_error("read", path, errno);
        if (got == 0) return text;
        text.append(part.data(), static_cast<std::size_t>(got));
        if (text.size() > max_file_bytes)
            return error{status::invalid_argument, 0,
                         fmt::format("'{}' is longer than any key file; name the right file", path.string())};
    }
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// The value of a line `name = "value"`.
std::optional<std::string_view> value_of(std::string_view line, std::string_view name) {
    if (!line.starts_with(name)) return std::nullopt;
    line = trimmed(line.substr(name.size()));
    if (!line.starts_with('=')) return std::nullopt;
    line = trimmed(line.substr(1));
    if (line.size() < 2 || !line.starts_with('"') || !line.ends_with('"')) return std::nullopt;
    return line.substr(1, line.size() - 2);
}

template <class Visit>
result<void> for_each_line(std::string_view text, Visit&& visit) {
    for (int number = 1; !text.empty(); ++number) {
        const auto end = text.find('\n');
        if (auto done = visit(trimmed(text.substr(0, end)), number); !done) return done;
        text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    }
    return {};
}

/// Both halves as far as the text has them.
key_pair parse_certificate(std::string_view text) {
    key_pair keys;
    static_cast<void>(for_each_line(text, [&keys](std::string_view line, int) -> result<void> {
        if (const auto value = value_of(line, "public-key"); value && is_key(*value))
            keys.public_key = *value;
        if (const auto value = value_of(line, "secret-key"); value && is_key(*value))
            keys.secret_key = *value;
        return {};
    }));
    return keys;
}

result<void> write_file(const std::string& path, std::string_view text, mode_t mode, bool overwrite) {
    if (overwrite) ::unlink(path.c_str());
    const file_handle file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)};
    if (file.get() < 0 && errno == EEXIST)
        return error{
            status::invalid_state, EEXIST,
            fmt::format("'{}' exists already; choose another name, or replace it with --force", path)};
    if (file.get() < 0) return file_error("write", path, errno);
    while (!text.empty()) {
        const ssize_t put = ::write(file.get(), text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return file_error("write", path, errno);
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    if (::fchmod(file.get(), mode) != 0) return file_error("set the mode of", path, errno);
    return {};
}

}  // namespace

bool is_key(std::string_view text) noexcept {
    if (text.size() != key_characters) return false;
    std::array<char, key_characters + 1> terminated{};
    std::memcpy(terminated.data(), text.data(), text.size());
    std::array<std::uint8_t, 32> binary{};
    return std::strlen(terminated.data()) == key_characters &&
           zmq_z85_decode(binary.data(), terminated.data()) != nullptr;
}

result<key_pair> make_key_pair() {
    std::array<char, key_characters + 1> public_key{};
    std::array<char, key_characters + 1> secret_key{};
    do {
        if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
            return error{
                status::unsupported, zmq_errno(),
                "this ZeroMQ was built without CURVE; install one that has it (Debian's libzmq5 does)"};
    } while (public_key[0] == '#');
    return key_pair{public_key.data(), secret_key.data()};
}

result<void> write_key_files(const std::string& name, const key_pair& keys, bool overwrite) {
    const std::string private_path = name + ".key";
    const std::string public_path = name + ".pub";
    // Both are looked at first, so that a refusal leaves nothing half done.
    if (struct stat info{}; !overwrite && ::stat(public_path.c_str(), &info) == 0)
        return error{
            status::invalid_state, EEXIST,
            fmt::format("'{}' exists already; choose another name, or replace it with --force", public_path)};
    const std::string private_text = fmt::format(
        "# Private key. Keep it secret: whoever has it can act as its owner.\n"
        "metadata\ncurve\n    public-key = \"{}\"\n    secret-key = \"{}\"\n",
        keys.public_key, keys.secret_key);
    const std::string public_text = fmt::format(
        "# Public key. May be given to anyone.\nmetadata\ncurve\n    public-key = \"{}\"\n", keys.public_key);
    if (auto written = write_file(private_path, private_text, 0600, overwrite); !written) return written;
    return write_file(public_path, public_text, 0644, overwrite);
}

result<key_pair> read_key_file(const std::filesystem::path& path) {
    const file_handle file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.get() < 0) {
        const int native = errno;
        return error{status::unauthorized, native,
                     fmt::format("cannot read key_file '{}': {}; make a key pair with accel_keys",
                                 path.string(), std::strerror(native))};
    }
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return file_error("look at", path, errno);
    if ((info.st_mode & 077U) != 0)
        return error{status::unauthorized, 0,
                     fmt::format("key_file '{}' may be read by others (mode {:04o}); run: chmod 600 '{}'",
                                 path.string(), info.st_mode & 07777U, path.string())};
    auto text = read_all(file, path);
    if (!text) return text.error();
    key_pair keys = parse_certificate(*text);
    if (keys.secret_key.empty())
        return error{
            status::unauthorized, 0,
            fmt::format("key_file '{}' holds no secret-key; name the .key file that accel_keys wrote",
                        path.string())};
    std::array<char, key_characters + 1> derived{};
    if (zmq_curve_public(derived.data(), keys.secret_key.c_str()) != 0)
        return error{status::unsupported, zmq_errno(), "this ZeroMQ was built without CURVE"};
    if (!keys.public_key.empty() && keys.public_key != derived.data())
        return error{
            status::unauthorized, 0,
            fmt::format("the halves of key_file '{}' do not belong together; make a new pair with accel_keys",
                        path.string())};
    keys.public_key = derived.data();
    return keys;
}

result<std::string> read_public_key(const std::string& text_or_path) {
    if (is_key(text_or_path)) return text_or_path;
    const file_handle file{::open(text_or_path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.get() < 0) {
        const int native = errno;
        return error{
            status::unauthorized, native,
            fmt::format(
                "server_key '{}' is neither a key of 40 Z85 characters nor a file that can be read: {}",
                text_or_path, std::strerror(native))};
    }
    auto text = read_all(file, text_or_path);
    if (!text) return text.error();
    if (const key_pair keys = parse_certificate(*text); !keys.public_key.empty()) return keys.public_key;
    const std::string_view first_line = std::string_view{*text}.substr(0, text->find('\n'));
    if (const auto bare = trimmed(first_line); is_key(bare)) return std::string{bare};
    return error{
        status::unauthorized, 0,
        fmt::format("'{}' holds no public key; name the .pub file that accel_keys wrote", text_or_path)};
}

result<std::vector<std::string>> read_authorized_keys(const std::filesystem::path& path) {
    const file_handle file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    if (file.get() < 0) {
        const int native = errno;
        return error{
            status::unauthorized, native,
            fmt::format(
                "cannot read authorized_keys '{}': {}; write the clients' public keys there, one a line",
                path.string(), std::strerror(native))};
    }
    auto text = read_all(file, path);
    if (!text) return text.error();
    std::vector<std::string> keys;
    auto parsed = for_each_line(*text, [&](std::string_view line, int number) -> result<void> {
        if (line.empty() || line.starts_with('#') || line == "metadata" || line == "curve") return {};
        const auto named = value_of(line, "public-key");
        const auto key = named ? *named : line.substr(0, line.find_first_of(" \t"));
        if (!is_key(key))
            return error{
                status::unauthorized, 0,
                fmt::format("line {} of authorized_keys '{}' is not a public key (40 Z85 characters)", number,
                            path.string())};
        keys.emplace_back(key);
        return {};
    });
    if (!parsed) return parsed.error();
    if (keys.empty())
        return error{
            status::unauthorized, 0,
            fmt::format(
                "authorized_keys '{}' holds no key, so no client could connect; add the clients' .pub "
                "files to it",
                path.string())};
    return keys;
}

}  // namespace accel::core
