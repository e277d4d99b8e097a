// SPDX-License-Identifier: Apache-2.0
#include "backends/shm/segment.hpp"

#include "core/net/descriptor_error.hpp"
#include "core/net/socket.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace accel::shm {
namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
/// From Linux 5.1 on. Older headers lack the name.
constexpr int future_write_seal = 0x0010;

error cannot_map(std::size_t bytes) {
    const int number = errno;
    return {status::out_of_memory, number,
            fmt::format("shm: cannot map {} bytes of shared memory ({}); ask for fewer or smaller slots", bytes,
                        std::strerror(number))};
}

std::byte* map_shared(int fd, std::size_t bytes, peer_access access) noexcept {
    const int protection = access == peer_access::write ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const base = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

/// Pages of hugetlbfs may be missing at their first use, which ends the process. Those of tmpfs are not.
bool is_sealed_memory(int fd, std::size_t bytes) noexcept {
    struct stat file {};
    struct statfs system {};
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & size_seals) == size_seals && ::fstat(fd, &file) == 0 &&
           static_cast<std::size_t>(file.st_size) == bytes && ::fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

}  // namespace

segment& segment::operator=(segment&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    fd_ = std::move(other.fd_);
    base_ = std::exchange(other.base_, nullptr);
    bytes_ = other.bytes_;
    return *this;
}

void segment::unmap() noexcept {
    if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), bytes_);
}

result<segment> segment::create(std::size_t bytes, peer_access peer) {
    segment made;
    made.bytes_ = bytes;
    made.fd_ = core::unique_fd(::memfd_create("accel_transport", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made.fd_.open()) return core::no_descriptor("for shm", made.fd_.failure());
    // A longer one than the limit of files is a signal that ends the program (SIGXFSZ).
    rlimit files{};
    if (::getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes)
        return error{status::out_of_memory, EFBIG,
                     fmt::format("shm: {} bytes of shared memory are longer than the {} bytes that a file may have; "
                                 "raise that limit (ulimit -f)",
                                 bytes, files.rlim_cur)};
    if (::ftruncate(made.fd_.get(), static_cast<off_t>(bytes)) != 0) return cannot_map(bytes);
    made.base_ = map_shared(made.fd_.get(), bytes, peer_access::write);
    if (made.base_ == nullptr) return cannot_map(bytes);
    // This mapping stays writable.
    const int seals = size_seals | (peer == peer_access::read ? future_write_seal : 0);
    if (::fcntl(made.fd_.get(), F_ADD_SEALS, seals) == 0) return made;
    const int failed = errno;
    return error{status::unsupported, failed,
                 fmt::format("shm: this OS cannot seal memory against writers ({}); use Linux 5.1 or later",
                             std::strerror(failed))};
}

result<segment> segment::map(core::unique_fd made, std::size_t bytes, peer_access own) {
    errno = 0;
    const bool sealed = is_sealed_memory(made.get(), bytes);
    if (!sealed && errno == ENOMEM) return cannot_map(bytes);
    if (!sealed)
        return error{status::protocol_error, 0, "shm: the server did not pass sealed memory of the agreed size"};
    segment out;
    out.bytes_ = bytes;
    out.base_ = map_shared(made.get(), bytes, own);
    if (out.base_ == nullptr) return cannot_map(bytes);
    return out;
}

}  // namespace accel::shm
