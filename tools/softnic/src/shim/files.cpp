// SPDX-License-Identifier: Apache-2.0
// Replacements for what opens and looks at files: /sys/class/infiniband* and /sys/module/nvidia_peermem are our
// tree, /dev/infiniband/uverbsN is us. Also the fortified variants, which programs built with _FORTIFY_SOURCE call
// instead.
#include "shim/installation.hpp"
#include "shim/real.hpp"
#include "shim/sysfs.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace {

using accel::softnic::installation;
namespace sysfs = accel::softnic::sysfs;

constexpr unsigned uverbs_major = 231;
constexpr unsigned first_minor = 192;

/// The path to use in place of `path`.
class redirected {
  public:
    explicit redirected(const char* path) : path_(sysfs::redirect(path, buffer_)) {
        if (path_ == nullptr) path_ = path;
    }
    [[nodiscard]] const char* get() const { return path_; }

  private:
    std::string buffer_;
    const char* path_;
};

template <class Stat>
void make_character_device(Stat& status, int index) {
    status.st_mode = S_IFCHR | 0666;
    status.st_rdev = makedev(uverbs_major, first_minor + static_cast<unsigned>(index));
}

void make_character_device(struct statx& status, int index) {
    status.stx_mode = S_IFCHR | 0666;
    status.stx_rdev_major = uverbs_major;
    status.stx_rdev_minor = first_minor + static_cast<unsigned>(index);
}

template <class Stat>
int patch_by_path(int result, const char* path, Stat* status) {
    const int index = sysfs::device_node(path);
    if (result == 0 && index >= 0) make_character_device(*status, index);
    return result;
}

bool is_file_without_name(mode_t mode, std::uint64_t links) {
    return S_ISREG(mode) && links == 0;
}
template <class Stat>
bool is_file_without_name(const Stat& status) {
    return is_file_without_name(status.st_mode, status.st_nlink);
}
bool is_file_without_name(const struct statx& status) {
    return is_file_without_name(status.stx_mode, status.stx_nlink);
}

template <class Stat>
int patch_by_descriptor(int result, int descriptor, Stat* status) {
    if (result != 0) return result;
    int index = installation::get().device_of(descriptor);
    if (index < 0 && is_file_without_name(*status)) index = installation::device_of_duplicate(descriptor);
    if (index >= 0) make_character_device(*status, index);
    return result;
}

/// With an empty path, `directory` itself is asked about (AT_EMPTY_PATH).
template <class Stat>
int patch_at(int result, int directory, const char* path, Stat* status) {
    if (path != nullptr && *path == 0) return patch_by_descriptor(result, directory, status);
    return patch_by_path(result, path, status);
}

bool needs_mode(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

template <class Real>
int open_with(Real real, const char* path, int flags, mode_t mode) {
    const int index = sysfs::device_node(path);
    if (index >= 0) return installation::get().open_device(index);
    return real(redirected(path).get(), flags, mode);
}

template <class Real>
int openat_with(Real real, int directory, const char* path, int flags, mode_t mode) {
    const int index = sysfs::device_node(path);
    if (index >= 0) return installation::get().open_device(index);
    return real(directory, redirected(path).get(), flags, mode);
}

}  // namespace

#define SOFTNIC_MODE_ARGUMENT(mode, flags) \
    mode_t mode = 0;                       \
    if (needs_mode(flags)) {               \
        va_list arguments;                 \
        va_start(arguments, flags);        \
        mode = va_arg(arguments, mode_t);  \
        va_end(arguments);                 \
    }

// Named as what they stand in for.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
SOFTNIC_EXPORT int open(const char* path, int flags, ...) {
    SOFTNIC_MODE_ARGUMENT(mode, flags)
    return open_with(SOFTNIC_REAL(open), path, flags, mode);
}

SOFTNIC_EXPORT int open64(const char* path, int flags, ...) {
    SOFTNIC_MODE_ARGUMENT(mode, flags)
    return open_with(SOFTNIC_REAL(open64), path, flags, mode);
}

SOFTNIC_EXPORT int openat(int directory, const char* path, int flags, ...) {
    SOFTNIC_MODE_ARGUMENT(mode, flags)
    return openat_with(SOFTNIC_REAL(openat), directory, path, flags, mode);
}

SOFTNIC_EXPORT int openat64(int directory, const char* path, int flags, ...) {
    SOFTNIC_MODE_ARGUMENT(mode, flags)
    return openat_with(SOFTNIC_REAL(openat64), directory, path, flags, mode);
}

SOFTNIC_EXPORT int __open_2(const char* path, int flags) {
    return open(path, flags);
}
SOFTNIC_EXPORT int __open64_2(const char* path, int flags) {
    return open64(path, flags);
}
SOFTNIC_EXPORT int __openat_2(int directory, const char* path, int flags) {
    return openat(directory, path, flags);
}
SOFTNIC_EXPORT int __openat64_2(int directory, const char* path, int flags) {
    return openat64(directory, path, flags);
}

SOFTNIC_EXPORT FILE* fopen(const char* path, const char* mode) {
    return SOFTNIC_REAL(fopen)(redirected(path).get(), mode);
}
SOFTNIC_EXPORT FILE* fopen64(const char* path, const char* mode) {
    return SOFTNIC_REAL(fopen64)(redirected(path).get(), mode);
}
SOFTNIC_EXPORT DIR* opendir(const char* path) {
    return SOFTNIC_REAL(opendir)(redirected(path).get());
}

SOFTNIC_EXPORT int stat(const char* __restrict path, struct stat* __restrict status) noexcept {
    return patch_by_path(SOFTNIC_REAL(stat)(redirected(path).get(), status), path, status);
}
SOFTNIC_EXPORT int stat64(const char* __restrict path, struct stat64* __restrict status) noexcept {
    return patch_by_path(SOFTNIC_REAL(stat64)(redirected(path).get(), status), path, status);
}
SOFTNIC_EXPORT int lstat(const char* __restrict path, struct stat* __restrict status) noexcept {
    return patch_by_path(SOFTNIC_REAL(lstat)(redirected(path).get(), status), path, status);
}
SOFTNIC_EXPORT int lstat64(const char* __restrict path, struct stat64* __restrict status) noexcept {
    return patch_by_path(SOFTNIC_REAL(lstat64)(redirected(path).get(), status), path, status);
}
SOFTNIC_EXPORT int fstat(int descriptor, struct stat* status) noexcept {
    return patch_by_descriptor(SOFTNIC_REAL(fstat)(descriptor, status), descriptor, status);
}
SOFTNIC_EXPORT int fstat64(int descriptor, struct stat64* status) noexcept {
    return patch_by_descriptor(SOFTNIC_REAL(fstat64)(descriptor, status), descriptor, status);
}
SOFTNIC_EXPORT int fstatat(int directory, const char* __restrict path, struct stat* __restrict status,
                           int flags) noexcept {
    return patch_at(SOFTNIC_REAL(fstatat)(directory, redirected(path).get(), status, flags), directory, path, status);
}
SOFTNIC_EXPORT int fstatat64(int directory, const char* __restrict path, struct stat64* __restrict status,
                             int flags) noexcept {
    return patch_at(SOFTNIC_REAL(fstatat64)(directory, redirected(path).get(), status, flags), directory, path, status);
}
SOFTNIC_EXPORT int statx(int directory, const char* __restrict path, int flags, unsigned mask,
                         struct statx* __restrict status) noexcept {
    return patch_at(SOFTNIC_REAL(statx)(directory, redirected(path).get(), flags, mask, status), directory, path,
                    status);
}
SOFTNIC_EXPORT int access(const char* path, int mode) noexcept {
    return SOFTNIC_REAL(access)(redirected(path).get(), mode);
}
SOFTNIC_EXPORT int faccessat(int directory, const char* path, int mode, int flags) noexcept {
    return SOFTNIC_REAL(faccessat)(directory, redirected(path).get(), mode, flags);
}

SOFTNIC_EXPORT ssize_t readlink(const char* __restrict path, char* __restrict to, size_t size) noexcept {
    return SOFTNIC_REAL(readlink)(redirected(path).get(), to, size);
}
SOFTNIC_EXPORT ssize_t __readlink_chk(const char* path, char* to, size_t size, size_t) {
    return readlink(path, to, size);
}
SOFTNIC_EXPORT ssize_t readlinkat(int directory, const char* __restrict path, char* __restrict to,
                                  size_t size) noexcept {
    return SOFTNIC_REAL(readlinkat)(directory, redirected(path).get(), to, size);
}

/// By version: plain dlsym finds the oldest realpath, which refuses a null buffer.
SOFTNIC_EXPORT char* realpath(const char* __restrict path, char* __restrict to) noexcept {
    static const auto real =
        reinterpret_cast<char* (*)(const char*, char*)>(dlvsym(RTLD_NEXT, "realpath", "GLIBC_2.3"));
    return real(redirected(path).get(), to);
}
SOFTNIC_EXPORT char* __realpath_chk(const char* path, char* to, size_t) {
    return realpath(path, to);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
