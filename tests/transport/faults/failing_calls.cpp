// SPDX-License-Identifier: Apache-2.0
// Stands in front of the C library's system calls, for this program and the libraries that it loads.
#include "faults/failing_calls.hpp"

#include <array>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <thread>
#include <type_traits>

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's
extern "C" const char __executable_start;
extern "C" const char etext;
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace accel::faults {
namespace {

constexpr std::array failures = std::to_array<failure>({
    {"socket", EMFILE},
    {"socket", ENFILE},
    {"socket", ENOBUFS},
    {"socket", EACCES},
    {"bind", EADDRINUSE},
    {"bind", EACCES},
    {"listen", EADDRINUSE},
    {"accept4", EMFILE},
    {"accept4", ENFILE},
    {"accept4", ENOMEM},
    {"accept4", ECONNABORTED},
    {"accept4", EINTR},
    {"accept4", EPERM},
    {"connect", EADDRNOTAVAIL},
    {"connect", ENETUNREACH},
    {"connect", EPERM},
    {"epoll_create1", EMFILE},
    {"epoll_create1", ENOMEM},
    {"epoll_ctl", ENOMEM},
    {"epoll_ctl", ENOSPC},
    {"eventfd", EMFILE},
    {"eventfd", ENFILE},
    {"eventfd", ENOMEM},
    {"timerfd_create", EMFILE},
    {"timerfd_create", ENOMEM},
    {"memfd_create", EMFILE},
    {"memfd_create", ENOMEM},
    {"memfd_create", ENOSYS},
    {"mmap", ENOMEM},
    {"mmap", EAGAIN},
    {"fcntl", EPERM},
    {"fcntl", EMFILE},
    {"setsockopt", ENOBUFS},
    {"setsockopt", ENOPROTOOPT},
    {"getsockopt", ENOBUFS},
    {"getsockname", ENOBUFS},
    {"getpeername", ENOTCONN},
    {"open", EMFILE},
    {"open", ENOENT},
    {"open", EACCES},
    {"fstat", ENOMEM},
    {"ftruncate", ENOMEM},
    {"ftruncate", EINTR},
    {"send", ENOMEM},
    {"send", EINTR},
    {"send", EAGAIN},
    {"sendmsg", ENOMEM},
    {"sendmsg", EINTR},
    {"sendmsg", EAGAIN},
    {"sendmsg", ETOOMANYREFS},
    {"recv", ENOMEM},
    {"recv", EINTR},
    {"recv", EAGAIN},
    {"recv", ECONNRESET},
    {"recvmsg", ENOMEM},
    {"recvmsg", EINTR},
    {"recvmsg", EAGAIN},
    {"recvmsg", ECONNRESET},
    {"read", EINTR},
    {"read", EIO},
    {"getrandom", EINTR},
    {"getrandom", ENOSYS},
    {"poll", EINTR},
    {"poll", ENOMEM},
    {"ppoll", EINTR},
    {"ppoll", ENOMEM},
    {"epoll_wait", EINTR},
});

std::atomic<const failure*> armed{nullptr};
std::atomic<int> inside{0};  ///< threads that look at what is armed
std::atomic<long> before_it{0};
std::atomic<bool> has_failed{false};
std::atomic<whose> scope{whose::calling_threads};
thread_local bool arming_thread = false;
std::bitset<4'096> open_before;

[[nodiscard]] bool was_open(int fd) noexcept {
    return fd >= 0 && static_cast<std::size_t>(fd) < open_before.size() && open_before[static_cast<std::size_t>(fd)];
}

bool would_fail(std::string_view call, const void* caller, int concerns) noexcept {
    const failure* const how = armed;
    if (how == nullptr || how->call != call || was_open(concerns)) return false;
    const auto* const place = static_cast<const char*>(caller);
    if (place < &__executable_start || place >= &etext) return false;
    if (arming_thread != (scope == whose::calling_threads)) return false;
    if (before_it-- != 0) return false;
    has_failed = true;
    errno = how->number;
    return true;
}

template <class Result>
Result refusal() noexcept {
    if constexpr (std::is_pointer_v<Result>)
        return MAP_FAILED;
    else
        return -1;
}

template <class Function>
Function* next(const char* name) noexcept {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

bool is_failing(std::string_view call, const void* caller, int concerns) noexcept {
    ++inside;
    const bool fails = would_fail(call, caller, concerns);
    --inside;
    return fails;
}

std::span<const failure> all_failures() noexcept {
    return failures;
}

void fail_call(const failure& how, std::size_t number, whose of) {
    for (std::size_t fd = 0; fd < open_before.size(); ++fd)
        open_before[fd] = ::fcntl(static_cast<int>(fd), F_GETFD) >= 0;
    forget_objects();
    arming_thread = true;
    scope = of;
    has_failed = false;
    before_it = static_cast<long>(number);
    armed = &how;
}
bool stop_failing_calls() noexcept {
    armed = nullptr;
    while (inside != 0) std::this_thread::yield();
    arming_thread = false;
    return has_failed;
}

}  // namespace accel::faults

// NOLINTBEGIN(cert-dcl50-cpp): as the C library has them
#define ACCEL_FAILING(result, name, parameters, arguments, concerns)                 \
    extern "C" __attribute__((visibility("default"))) result name parameters {       \
        static const auto real = accel::faults::next<result parameters>(#name);      \
        if (accel::faults::is_failing(#name, __builtin_return_address(0), concerns)) \
            return accel::faults::refusal<result>();                                 \
        return real arguments;                                                       \
    }

ACCEL_FAILING(int, socket, (int family, int type, int protocol), (family, type, protocol), -1)
ACCEL_FAILING(int, bind, (int fd, const sockaddr* to, socklen_t size), (fd, to, size), fd)
ACCEL_FAILING(int, listen, (int fd, int backlog), (fd, backlog), fd)
ACCEL_FAILING(int, accept4, (int fd, sockaddr* from, socklen_t* size, int flags), (fd, from, size, flags), -1)
ACCEL_FAILING(int, connect, (int fd, const sockaddr* to, socklen_t size), (fd, to, size), fd)
ACCEL_FAILING(int, epoll_create1, (int flags), (flags), -1)
ACCEL_FAILING(int, eventfd, (unsigned value, int flags), (value, flags), -1)
ACCEL_FAILING(int, timerfd_create, (int clock, int flags), (clock, flags), -1)
ACCEL_FAILING(int, memfd_create, (const char* called, unsigned flags), (called, flags), -1)
ACCEL_FAILING(void*, mmap, (void* at, size_t size, int protection, int flags, int fd, off_t from),
              (at, size, protection, flags, fd, from), fd)
ACCEL_FAILING(int, setsockopt, (int fd, int level, int name, const void* value, socklen_t size),
              (fd, level, name, value, size), fd)
ACCEL_FAILING(int, getsockopt, (int fd, int level, int name, void* value, socklen_t* size),
              (fd, level, name, value, size), fd)
ACCEL_FAILING(int, getsockname, (int fd, sockaddr* out, socklen_t* size), (fd, out, size), fd)
ACCEL_FAILING(int, getpeername, (int fd, sockaddr* out, socklen_t* size), (fd, out, size), fd)
ACCEL_FAILING(int, fstat, (int fd, struct stat* out), (fd, out), fd)
ACCEL_FAILING(int, ftruncate, (int fd, off_t size), (fd, size), fd)
ACCEL_FAILING(ssize_t, send, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags), fd)
ACCEL_FAILING(ssize_t, sendmsg, (int fd, const msghdr* what, int flags), (fd, what, flags), fd)
ACCEL_FAILING(ssize_t, recv, (int fd, void* to, size_t size, int flags), (fd, to, size, flags), fd)
ACCEL_FAILING(ssize_t, recvmsg, (int fd, msghdr* what, int flags), (fd, what, flags), fd)
ACCEL_FAILING(ssize_t, read, (int fd, void* to, size_t size), (fd, to, size), fd)
ACCEL_FAILING(ssize_t, getrandom, (void* to, size_t size, unsigned flags), (to, size, flags), -1)
ACCEL_FAILING(int, poll, (pollfd * fds, nfds_t count, int timeout), (fds, count, timeout), -1)
ACCEL_FAILING(int, ppoll, (pollfd * fds, nfds_t count, const timespec* timeout, const sigset_t* mask),
              (fds, count, timeout, mask), -1)
ACCEL_FAILING(int, epoll_wait, (int fd, epoll_event* out, int size, int timeout), (fd, out, size, timeout), -1)

extern "C" __attribute__((visibility("default"))) int epoll_ctl(int epoll, int what, int fd, epoll_event* event) {
    static const auto real = accel::faults::next<int(int, int, int, epoll_event*)>("epoll_ctl");
    if (what == EPOLL_CTL_ADD && accel::faults::is_failing("epoll_ctl", __builtin_return_address(0), fd)) return -1;
    return real(epoll, what, fd, event);
}
extern "C" __attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
    static const auto real = accel::faults::next<int(const char*, int, mode_t)>("open");
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return accel::faults::is_failing("open", __builtin_return_address(0)) ? -1 : real(path, flags, mode);
}
extern "C" __attribute__((visibility("default"))) int fcntl(int fd, int what, ...) {
    static const auto real = accel::faults::next<int(int, int, void*)>("fcntl");
    va_list rest;
    va_start(rest, what);
    void* const argument = va_arg(rest, void*);
    va_end(rest);
    const bool may_fail = what == F_ADD_SEALS || what == F_DUPFD_CLOEXEC;
    return may_fail && accel::faults::is_failing("fcntl", __builtin_return_address(0), fd) ? -1
                                                                                           : real(fd, what, argument);
}
// NOLINTEND(cert-dcl50-cpp)
