// SPDX-License-Identifier: Apache-2.0
#include "core/net/descriptor_error.hpp"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace accel::core {

bool is_shortage(int number) noexcept {
    return number == EMFILE || number == ENFILE || number == ENOMEM || number == ENOBUFS;
}

bool is_forbidden(int number) noexcept {
    return number == EPERM || number == EACCES || number == ENOSYS;
}

std::string_view advice_for(int number) noexcept {
    switch (number) {
        case EMFILE:
            return "raise the limit of open files (ulimit -n)";
        case ENFILE:
            return "raise the system's limit of open files (sysctl fs.file-max)";
        case ENOMEM:
        case ENOBUFS:
            return "the OS has no memory for it; free some, or raise the cgroup's memory.max";
        case ENOSPC:
            return "raise the limit of watched descriptors (sysctl fs.epoll.max_user_watches)";
        case EPERM:
        case EACCES:
            return "the OS does not allow this process to do that; check its container's seccomp profile and the "
                   "firewall";
        case ENOSYS:
            return "the OS lacks this system call, or the container's seccomp profile hides it";
        default:
            return "see errno(3) for what it means";
    }
}

error no_descriptor(std::string_view wanted, int number) {
    const bool used_up = number == EMFILE || number == ENFILE;
    const bool memory = number == ENOMEM || number == ENOBUFS;
    const char* const what = used_up ? "no descriptor is left" : "the OS gives no descriptor";
    const std::string reason = used_up ? "" : fmt::format(" ({})", std::strerror(number));
    return {memory ? status::out_of_memory : status::system_error, number,
            fmt::format("{} {}{}; {}", what, wanted, reason, advice_for(number))};
}

error cannot_watch(std::string_view whose, int number) {
    return {number == ENOMEM ? status::out_of_memory : status::system_error, number,
            fmt::format("the OS cannot watch the descriptors of {} ({}); {}", whose, std::strerror(number),
                        advice_for(number))};
}

}  // namespace accel::core
