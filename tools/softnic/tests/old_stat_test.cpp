// SPDX-License-Identifier: Apache-2.0
// How programs built against glibc before 2.33 look at files, and statx. Run under `softnic run`.
#include "verbs_pair.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

// glibc no longer declares these, and links them by version only.
extern "C" {
int old_xstat(int version, const char* path, struct stat* status);
int old_xstat64(int version, const char* path, struct stat64* status);
int old_lxstat(int version, const char* path, struct stat* status);
int old_lxstat64(int version, const char* path, struct stat64* status);
int old_fxstat(int version, int descriptor, struct stat* status);
int old_fxstat64(int version, int descriptor, struct stat64* status);
int old_fxstatat(int version, int directory, const char* path, struct stat* status, int flags);
int old_fxstatat64(int version, int directory, const char* path, struct stat64* status, int flags);
}
asm(".symver old_xstat,__xstat@GLIBC_2.2.5");
asm(".symver old_xstat64,__xstat64@GLIBC_2.2.5");
asm(".symver old_lxstat,__lxstat@GLIBC_2.2.5");
asm(".symver old_lxstat64,__lxstat64@GLIBC_2.2.5");
asm(".symver old_fxstat,__fxstat@GLIBC_2.2.5");
asm(".symver old_fxstat64,__fxstat64@GLIBC_2.2.5");
asm(".symver old_fxstatat,__fxstatat@GLIBC_2.4");
asm(".symver old_fxstatat64,__fxstatat64@GLIBC_2.4");

namespace {

namespace st = accel::softnic::testing;

constexpr int version = 1;  ///< _STAT_VER of x86-64
constexpr unsigned uverbs_major = 231;
constexpr const char* node = "/dev/infiniband/uverbs0";
constexpr const char* folder = "/sys/class/infiniband_verbs/uverbs0";

template <class Stat>
void expect_uverbs(int result, const Stat& status) {
    EXPECT_EQ(result, 0);
    EXPECT_TRUE(S_ISCHR(status.st_mode));
    EXPECT_EQ(major(status.st_rdev), uverbs_major);
}

/// The three ways to ask by path, as `Stat` has them.
template <class Stat, class ByPath, class At>
void expect_device_by_path(ByPath follow, ByPath link, At at) {
    Stat status{};
    expect_uverbs(follow(version, node, &status), status);
    status = {};
    expect_uverbs(link(version, node, &status), status);
    status = {};
    expect_uverbs(at(version, AT_FDCWD, node, &status, 0), status);
    status = {};
    EXPECT_EQ(follow(version, folder, &status), 0);
    EXPECT_TRUE(S_ISDIR(status.st_mode));
}

template <class Stat, class ByDescriptor, class At>
void expect_device_by_descriptor(ByDescriptor ask, At at) {
    const st::context_owner context = st::open_device();
    Stat status{};
    expect_uverbs(ask(version, context->cmd_fd, &status), status);
    status = {};
    expect_uverbs(at(version, context->cmd_fd, "", &status, AT_EMPTY_PATH), status);
}

TEST(old_stat, finds_the_device_by_path) {
    expect_device_by_path<struct stat>(&old_xstat, &old_lxstat, &old_fxstatat);
    expect_device_by_path<struct stat64>(&old_xstat64, &old_lxstat64, &old_fxstatat64);
}

TEST(old_stat, a_descriptor_shows_a_character_device) {
    expect_device_by_descriptor<struct stat>(&old_fxstat, &old_fxstatat);
    expect_device_by_descriptor<struct stat64>(&old_fxstat64, &old_fxstatat64);
}

void expect_uverbs(int result, const struct statx& status) {
    EXPECT_EQ(result, 0);
    EXPECT_TRUE(S_ISCHR(status.stx_mode));
    EXPECT_EQ(status.stx_rdev_major, uverbs_major);
}

TEST(statx, finds_the_device_by_path_and_by_descriptor) {
    struct statx status {};
    expect_uverbs(::statx(AT_FDCWD, node, 0, STATX_BASIC_STATS, &status), status);
    const st::context_owner context = st::open_device();
    status = {};
    expect_uverbs(::statx(context->cmd_fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status), status);
    status = {};
    EXPECT_EQ(::statx(AT_FDCWD, folder, 0, STATX_BASIC_STATS, &status), 0);
}

}  // namespace
