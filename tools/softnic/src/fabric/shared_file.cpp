// SPDX-License-Identifier: Apache-2.0
#include "fabric/shared_file.hpp"

#include "fabric/segment.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

std::size_t longest_file() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

}  // namespace

bool set_length(int file, std::size_t bytes) {
    if (bytes <= longest_file()) return ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
    errno = EFBIG;
    return false;
}

bool take_memory(int file, std::size_t offset, std::size_t bytes) {
    return ::fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

std::string shared_memory_trouble(int number) {
    switch (number) {
        case EFBIG:
            return fmt::format(
                "files may have at most {} MiB (ulimit -f), and processes communicate through a file of "
                "{} MiB",
                longest_file() >> 20, (segment_bytes >> 20) + 1);
        case EROFS:
            return "/dev/shm is read-only, and processes communicate through files there";
        case ENOSPC:
            return "/dev/shm is full (docker: --shm-size)";
        case EACCES:
        case EPERM:
            return fmt::format("this user may not write to /dev/shm ({})", std::strerror(number));
        case ENOENT:
            return "there is no /dev/shm";
        default:
            return std::strerror(number);
    }
}

}  // namespace accel::softnic
