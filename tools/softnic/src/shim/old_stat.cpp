// SPDX-License-Identifier: Apache-2.0
// What stat() and its like are called in programs built against glibc before 2.33. There they were inline functions
// of a header, which passed the version of the struct. On x86-64 there is one struct, whatever the version.
#include "shim/real.hpp"

#include <fcntl.h>
#include <sys/stat.h>

// Named as what they stand in for.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
SOFTNIC_EXPORT int __xstat(int, const char* path, struct stat* status) {
    return stat(path, status);
}
SOFTNIC_EXPORT int __xstat64(int, const char* path, struct stat64* status) {
    return stat64(path, status);
}
SOFTNIC_EXPORT int __lxstat(int, const char* path, struct stat* status) {
    return lstat(path, status);
}
SOFTNIC_EXPORT int __lxstat64(int, const char* path, struct stat64* status) {
    return lstat64(path, status);
}
SOFTNIC_EXPORT int __fxstat(int, int descriptor, struct stat* status) {
    return fstat(descriptor, status);
}
SOFTNIC_EXPORT int __fxstat64(int, int descriptor, struct stat64* status) {
    return fstat64(descriptor, status);
}
SOFTNIC_EXPORT int __fxstatat(int, int directory, const char* path, struct stat* status, int flags) {
    return fstatat(directory, path, status, flags);
}
SOFTNIC_EXPORT int __fxstatat64(int, int directory, const char* path, struct stat64* status, int flags) {
    return fstatat64(directory, path, status, flags);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
