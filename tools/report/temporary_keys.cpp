// SPDX-License-Identifier: Apache-2.0
#include "report/temporary_keys.hpp"

#include "report/child_process.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

namespace accel::report {
namespace {

namespace fs = std::filesystem;

/// A value of a URI option: everything but the plainest characters as %XX.
std::string percent_encoded(std::string_view text) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    std::string out;
    for (const char c : text)
        if (plain.find(c) != std::string_view::npos)
            out += c;
        else
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    return out;
}

/// Makes `path`.key and `path`.pub.
result<void> make_pair(const std::string& path) {
    auto maker = child_process::start({program_path("accel_keys"), path});
    if (!maker) return maker.error();
    if (maker->wait(std::chrono::seconds{20}) == 0) return {};
    return error{status::system_error, 0, fmt::format("accel_keys could not make a key pair in {}", path)};
}

}  // namespace

result<temporary_keys> temporary_keys::make() {
    std::error_code failure;
    const fs::path base = fs::temp_directory_path(failure);
    std::string folder = ((failure ? fs::path{"/tmp"} : base) / "accel.XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {
        return error{status::system_error, errno,
                     fmt::format("cannot make a folder for keys in {}: set TMPDIR to a writable folder", folder)};
    }
    temporary_keys keys{std::move(folder)};
    for (const char* name : {"/server", "/client"})
        if (auto made = make_pair(keys.folder_ + name); !made) return made.error();
    return keys;
}

temporary_keys::~temporary_keys() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string temporary_keys::server_options() const {
    const std::string folder = percent_encoded(folder_);
    return fmt::format("?key_file={0}/server.key&authorized_keys={0}/client.pub", folder);
}

std::string temporary_keys::client_options() const {
    const std::string folder = percent_encoded(folder_);
    return fmt::format("?key_file={0}/client.key&server_key={0}/server.pub", folder);
}

}  // namespace accel::report
