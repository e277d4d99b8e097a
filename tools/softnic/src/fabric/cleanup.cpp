// SPDX-License-Identifier: Apache-2.0
// The shared files of fabrics that nobody is in. Whoever joins or removes one holds the whole-file lock
// meanwhile, and whoever has waited for that lock looks whether the file still has a name.
#include "fabric/fabric.hpp"

#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

namespace fs = std::filesystem;

struct flock all_places() {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = max_nodes;
    return lock;
}

void remove_if_unused(int file, const std::string& name) {
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) return;
    auto probe = all_places();
    const bool unused = ::fcntl(file, F_OFD_GETLK, &probe) == 0 && probe.l_type == F_UNLCK;
    if (unused) ::shm_unlink(name.c_str());
    ::flock(file, LOCK_UN);
}

}  // namespace

std::string fabric::file_name(std::string_view name) {
    return fmt::format("/softnic-{}-{}", ::getuid(), name);
}

void fabric::remove_if_last() {
    if (node_ < 0 || name_.empty() || ::flock(file_, LOCK_EX) != 0) return;
    record(node_).leaving = 1;
    bool last = true;
    for (int node = 0; node < max_nodes; ++node)
        if (node != node_ && !is_dead(node) && record(node).leaving == 0) last = false;
    if (last) ::shm_unlink(name_.c_str());
    ::flock(file_, LOCK_UN);
}

void fabric::remove_unused() {
    const std::string prefix = file_name({});
    std::error_code error;
    for (fs::directory_iterator at("/dev/shm", error), end; !error && at != end; at.increment(error)) {
        const auto name = fmt::format("/{}", at->path().filename().native());
        std::error_code gone;
        if (!name.starts_with(prefix) || at->symlink_status(gone).type() != fs::file_type::regular) continue;
        const int file = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
        if (file < 0) continue;
        remove_if_unused(file, name);
        ::close(file);
    }
}

}  // namespace accel::softnic
