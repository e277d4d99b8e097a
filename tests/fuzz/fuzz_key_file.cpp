// Key files and lists of authorised keys, as read from a file.
#include "core/control/key_file.hpp"
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
    if (const auto keys = core::read_key_file(path); keys)
        require(core::is_key(keys.value().public_key) && core::is_key(keys.value().secret_key),
                "both halves are keys");
    if (const auto key = core::read_public_key(path); key)
        require(core::is_key(key.value()), "a public key is a key");
    if (const auto keys = core::read_authorized_keys(path); keys) {
        require(!keys.value().empty(), "there is at least one");
        for (const std::string& key : keys.value()) require(core::is_key(key), "and all are keys");
    }
    close(fd);
    return 0;
}
