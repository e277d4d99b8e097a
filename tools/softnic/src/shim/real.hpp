// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdio>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SOFTNIC_EXPORT extern "C" __attribute__((visibility("default")))

/// The functions of libc that this library replaces.
#define SOFTNIC_LIBC_FUNCTIONS(EACH) \
    EACH(access)                     \
    EACH(close)                      \
    EACH(faccessat)                  \
    EACH(fopen)                      \
    EACH(fopen64)                    \
    EACH(fstat)                      \
    EACH(fstat64)                    \
    EACH(fstatat)                    \
    EACH(fstatat64)                  \
    EACH(ioctl)                      \
    EACH(lstat)                      \
    EACH(lstat64)                    \
    EACH(open)                       \
    EACH(open64)                     \
    EACH(openat)                     \
    EACH(openat64)                   \
    EACH(opendir)                    \
    EACH(poll)                       \
    EACH(pthread_spin_lock)          \
    EACH(pthread_spin_unlock)        \
    EACH(read)                       \
    EACH(readlink) EACH(readlinkat) EACH(sigaction) EACH(signal) EACH(socket) EACH(stat) EACH(stat64) EACH(statx)

namespace accel::softnic {

/// The next definitions of them: libc's, or those of a library preloaded behind us. All are found when this library is
/// loaded, or by the first call if that is earlier: a sanitizer's symbolizer calls some of them (readlink, open, read)
/// where nobody may call dlsym.
struct libc_functions {
#define SOFTNIC_DECLARE(name) decltype(&::name) name;
    SOFTNIC_LIBC_FUNCTIONS(SOFTNIC_DECLARE)
#undef SOFTNIC_DECLARE
};
[[nodiscard]] const libc_functions& libc() noexcept;

}  // namespace accel::softnic

#define SOFTNIC_REAL(name) (::accel::softnic::libc().name)
