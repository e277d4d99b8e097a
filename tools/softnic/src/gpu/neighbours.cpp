// SPDX-License-Identifier: Apache-2.0
#include "gpu/neighbours.hpp"

#include <string>

#include <fcntl.h>
#include <unistd.h>

namespace accel::softnic::gpu {
namespace {

constexpr std::chrono::milliseconds look_interval{5};
constexpr long places = 1 << 30;

struct flock range(short kind, long first, long size) {
    struct flock made {};
    made.l_type = kind;
    made.l_whence = SEEK_SET;
    made.l_start = first;
    made.l_len = size;
    return made;
}

/// Does somebody else hold a place in [first, first + size)?
bool taken(int file, long first, long size) {
    if (size <= 0) return false;
    struct flock wanted = range(F_WRLCK, first, size);
    return ::fcntl(file, F_OFD_GETLK, &wanted) == 0 && wanted.l_type != F_UNLCK;
}

}  // namespace

/// Each process has one byte: by its number, or the next that is free.
neighbours::neighbours(std::string_view name) {
    constexpr int max_tries = 64;
    const std::string path = "/dev/shm/softnic-gpu-" + std::to_string(::getuid()) + "-" + std::string(name);
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0) return;
    place_ = ::getpid() % (places / 2);
    for (int tries = 0; tries < max_tries; ++tries, ++place_) {
        struct flock mine = range(F_WRLCK, place_, 1);
        if (::fcntl(file_, F_OFD_SETLK, &mine) == 0) return;
    }
    ::close(file_);
    file_ = -1;
}

neighbours::~neighbours() {
    if (file_ >= 0) ::close(file_);
}

bool neighbours::any() {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (file_ < 0 || now < look_at_) return seen_;
    look_at_ = now + look_interval;
    seen_ = taken(file_, 0, place_) || taken(file_, place_ + 1, places - place_ - 1);
    return seen_;
}

}  // namespace accel::softnic::gpu
