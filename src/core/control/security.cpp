// SPDX-License-Identifier: Apache-2.0
#include "core/control/security.hpp"

#include "core/log.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

namespace accel::core {
namespace {

std::string stamp_of(const std::string& path) {
    struct stat info {};
    if (path.empty() || ::stat(path.c_str(), &info) != 0) return "-";
    return fmt::format("{}.{}.{}.{}.{}.{}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
}

/// They are read again later, when the process may have another working directory.
security_options with_absolute_paths(security_options options) {
    for (std::string security_options::*each :
         {&security_options::key_file, &security_options::server_key, &security_options::authorized_keys,
          &security_options::cert_file, &security_options::ca_file}) {
        if ((options.*each).empty() || (options.*each).starts_with("ed25519:")) continue;
        std::error_code failure;
        const std::filesystem::path found = std::filesystem::absolute(options.*each, failure);
        if (!failure) options.*each = found.string();
    }
    return options;
}

result<std::shared_ptr<const security_identity>> make_identity(const security_options& from, bool server, bool reload) {
    auto made = std::make_shared<security_identity>();
    const security_options& options = made->options = with_absolute_paths(from);
    made->files = stamp_of_files(options);
    if (auto checked = check_key_options(options); !checked) return checked.error();
    if (options.insecure) return std::shared_ptr<const security_identity>(std::move(made));
    auto keys = server ? credentials::for_server(options, reload) : credentials::for_client(options);
    if (!keys) return keys.error();
    made->keys = std::move(*keys);
    return std::shared_ptr<const security_identity>(std::move(made));
}

}  // namespace

std::string security_identity::digest() const {
    if (!keys) return "insecure";
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", keys->digest(), options.key_file, options.server_key,
                       options.cert_file, options.ca_file, options.server_name);
}

std::string stamp_of_files(const security_options& options) {
    return fmt::format("{} {} {} {} {}", stamp_of(options.key_file), stamp_of(options.server_key),
                       stamp_of(options.authorized_keys), stamp_of(options.cert_file), stamp_of(options.ca_file));
}

result<void> check_key_options(const security_options& options) {
    const bool pins = !options.server_key.empty() || !options.authorized_keys.empty();
    const bool certificates = !options.cert_file.empty() || !options.ca_file.empty();
    if (options.insecure && (pins || certificates || !options.key_file.empty()))
        return error{status::invalid_argument, 0,
                     "insecure excludes keys, but keys were given as well; remove one of the two"};
    if (options.insecure && options.anonymous)
        return error{status::invalid_argument, 0,
                     "insecure lets in all clients and uses no keys; remove insecure or anonymous"};
    if (pins && certificates)
        return error{status::invalid_argument, 0,
                     "cert_file and ca_file exclude server_key and authorized_keys; remove one pair or the other"};
    return {};
}

result<std::shared_ptr<const security_identity>> load_client_security(const security_options& options) {
    return make_identity(options, false, false);
}

std::shared_ptr<const security_identity> named_after(std::shared_ptr<const security_identity> keys,
                                                     const security_options& options, const std::string& name) {
    const std::string& expected = options.server_name.empty() ? name : options.server_name;
    if (keys == nullptr || keys->options.server_name == expected) return keys;
    auto out = std::make_shared<security_identity>(*keys);
    out->options.server_name = expected;
    return out;
}

live_security::live_security(std::shared_ptr<const security_identity> loaded, bool server)
    : options_(loaded->options),
      server_(server),
      current_(std::move(loaded)),
      loaded_stamp_(current_->files),
      last_stamp_(current_->files) {}

result<std::shared_ptr<live_security>> live_security::of_server(const security_options& options) {
    auto identity = make_identity(options, true, false);
    if (!identity) return identity.error();
    return std::shared_ptr<live_security>(new live_security(std::move(*identity), true));
}

std::shared_ptr<const security_identity> live_security::current() const {
    const std::lock_guard lock(mutex_);
    return current_;
}

result<void> live_security::reload() {
    std::string stamp = stamp_of_files(options_);
    auto identity = make_identity(options_, server_, true);
    const std::lock_guard lock(mutex_);
    loaded_stamp_ = std::move(stamp);
    if (!identity) return identity.error();
    current_ = std::move(*identity);
    generation_.fetch_add(1, std::memory_order_release);
    return {};
}

void live_security::look_at_files() {
    if (!has_files()) return;
    {
        const std::lock_guard lock(mutex_);
        const nanoseconds at = now();
        if (at < next_look_) return;
        next_look_ = at + key_look_interval;
        // A changed file is loaded only after one check without a change: it may be half written.
        const std::string stamp = stamp_of_files(options_);
        const bool rested = stamp == std::exchange(last_stamp_, stamp);
        if (!rested || stamp == loaded_stamp_) return;
    }
    if (auto loaded = reload(); loaded)
        log().info("the key files have changed and were loaded again");
    else
        log().error("the key files have changed but cannot be loaded, so the old keys stay in use: {}",
                    loaded.error().message);
}

}  // namespace accel::core
