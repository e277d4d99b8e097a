// SPDX-License-Identifier: Apache-2.0
// Key files and lists of authorised keys, as read from a file.
#include "core/tls/key_file.hpp"
#include "fuzz_target.hpp"

#include <string>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace accel;
    using tests::require;
    const int fd = memfd_create("keys", MFD_CLOEXEC);
    require(fd >= 0 && fchmod(fd, 0600) == 0, "a file can be made");
    require(write(fd, data, size) == static_cast<ssize_t>(size), "and written");
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const auto is_key = [](const core::public_key& key) {
        const auto again = core::parse_public_key(key.text());
        return again && *again == key;
    };
    if (const auto key = core::read_private_key(path); key) require(key.value() != nullptr, "a private key is there");
    if (const auto key = core::read_server_key(path); key) require(is_key(key.value()), "a public key is a key");
    if (const auto key = core::public_key_of_file(path); key) require(is_key(key.value()), "whatever the file is");
    if (const auto keys = core::read_authorized_keys(path); keys)
        for (const core::public_key& key : keys.value()) require(is_key(key), "all are keys");
    close(fd);
    return 0;
}
