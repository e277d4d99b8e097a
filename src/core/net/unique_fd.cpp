// SPDX-License-Identifier: Apache-2.0
#include "core/net/unique_fd.hpp"

#include <cerrno>

#include <fcntl.h>

namespace accel::core {

int unique_fd::above_standard(int fd) noexcept {
    if (fd < 0) return errno > 0 ? -errno : none;
    const int made = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int failure = errno;
    ::close(fd);
    errno = failure;
    return made >= 0 ? made : -failure;
}

bool fill_standard_descriptors() noexcept {
    bool filled = true;
    for (int each = STDIN_FILENO; each <= STDERR_FILENO; ++each) {
        if (::fcntl(each, F_GETFD) >= 0) continue;
        const int made = ::open("/dev/null", O_RDWR | O_CLOEXEC);  // the lowest that is closed
        if (made > STDERR_FILENO) ::close(made);                   // another thread was faster
        filled = filled && made >= 0;
    }
    return filled;
}

}  // namespace accel::core
