// SPDX-License-Identifier: Apache-2.0
// Replacements for what acts on descriptors: commands, close, and waits for events.
#include "dma/fault_handler.hpp"
#include "dma/guarded.hpp"
#include "shim/installation.hpp"
#include "shim/real.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <span>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace {

using accel::softnic::installation;
using accel::softnic::poll_mode;
using accel::softnic::runner;
namespace fault_handler = accel::softnic::fault_handler;

constexpr int netlink_rdma = 20;

/// A program that does not wait but asks again moves the device on a bit each time.
void drive_a_little(runner& driver) {
    constexpr int max_rounds = 64;
    for (int round = 0; round < max_rounds && driver.step(); ++round) {
    }
}

/// Before the program blocks: let the device do what it can. Without a thread of its own, it must be driven
/// until the event is there.
void before_wait(int descriptor) {
    installation& mine = installation::get();
    runner* driver = mine.driver();
    if (driver == nullptr || accel::softnic::inside_model()) return;
    if (driver->mode() != poll_mode::deterministic) return driver->help();
    if ((::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0) return drive_a_little(*driver);
    while (!mine.has_event(descriptor))
        if (!driver->step()) ::sched_yield();
}

/// Until there is an event, as from the driver's file. False: the wait was interrupted, or must not be.
bool wait_for_event(int descriptor) {
    before_wait(descriptor);
    if ((::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0) {
        const bool there = installation::get().has_event(descriptor);
        errno = EAGAIN;
        return there;
    }
    pollfd entry{descriptor, POLLIN, 0};
    return SOFTNIC_REAL(poll)(&entry, 1, -1) >= 0;
}

ssize_t read_event(int descriptor, void* to, size_t size) {
    using accel::softnic::event_channel;
    std::array<std::byte, event_channel::event_bytes> event{};
    const auto room = std::span(event).first(std::min(size, event.size()));
    ssize_t result = installation::get().read_event(descriptor, room);
    while (result == -EAGAIN) {
        if (!wait_for_event(descriptor)) return -1;
        result = installation::get().read_event(descriptor, room);
    }
    if (result > 0 && !accel::softnic::guarded::copy(to, event.data(), static_cast<std::size_t>(result)))
        result = -EFAULT;
    if (result >= 0) return result;
    errno = static_cast<int>(-result);
    return -1;
}

bool any_event_descriptor(const pollfd* entries, nfds_t count) {
    const installation& mine = installation::get();
    for (nfds_t at = 0; at < count; ++at)
        if (mine.is_event_descriptor(entries[at].fd)) return true;
    return false;
}

/// poll() in deterministic mode: the device moves between looks at the descriptors.
int poll_while_driving(runner& driver, pollfd* entries, nfds_t count, int timeout_ms) {
    timespec start{};
    ::clock_gettime(CLOCK_MONOTONIC, &start);
    while (true) {
        const int ready = SOFTNIC_REAL(poll)(entries, count, 0);
        if (ready != 0) return ready;
        if (!driver.step()) ::sched_yield();
        timespec now{};
        ::clock_gettime(CLOCK_MONOTONIC, &now);
        const long long waited_ms = (now.tv_sec - start.tv_sec) * 1000LL + (now.tv_nsec - start.tv_nsec) / 1'000'000;
        if (timeout_ms >= 0 && waited_ms >= timeout_ms) return 0;
    }
}

}  // namespace

SOFTNIC_EXPORT int ioctl(int descriptor, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (request == RDMA_VERBS_IOCTL && !accel::softnic::inside_model()) {
        const int result = installation::get().control(descriptor, static_cast<ib_uverbs_ioctl_hdr*>(argument));
        if (result == 0) return 0;
        if (result > 0) {
            errno = result;
            return -1;
        }
    }
    return SOFTNIC_REAL(ioctl)(descriptor, request, argument);
}

SOFTNIC_EXPORT int close(int descriptor) {
    installation::get().on_close(descriptor);
    return SOFTNIC_REAL(close)(descriptor);
}

/// Without netlink, libibverbs looks for devices in sysfs, which is ours.
SOFTNIC_EXPORT int socket(int domain, int type, int protocol) noexcept {
    if (domain == AF_NETLINK && protocol == netlink_rdma) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return SOFTNIC_REAL(socket)(domain, type, protocol);
}

SOFTNIC_EXPORT ssize_t read(int descriptor, void* to, size_t size) {
    if (installation::get().is_event_channel(descriptor)) return read_event(descriptor, to, size);
    if (installation::get().is_event_descriptor(descriptor)) before_wait(descriptor);
    return SOFTNIC_REAL(read)(descriptor, to, size);
}

SOFTNIC_EXPORT int poll(pollfd* entries, nfds_t count, int timeout_ms) {
    runner* driver = installation::get().driver();
    if (driver == nullptr || accel::softnic::inside_model() || !any_event_descriptor(entries, count))
        return SOFTNIC_REAL(poll)(entries, count, timeout_ms);
    if (driver->mode() == poll_mode::deterministic) return poll_while_driving(*driver, entries, count, timeout_ms);
    driver->help();
    return SOFTNIC_REAL(poll)(entries, count, timeout_ms);
}

/// libmlx5 takes this lock in every post and poll: the moments at which the device is asked to look.
SOFTNIC_EXPORT int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
    runner* driver = installation::get().driver();
    if (driver != nullptr && driver->mode() != poll_mode::spin) driver->help();
    return SOFTNIC_REAL(pthread_spin_lock)(lock);
}

/// Behind the doorbell of a post: programs that then wait for memory to change call us no more.
SOFTNIC_EXPORT int pthread_spin_unlock(pthread_spinlock_t* lock) noexcept {
    const int result = SOFTNIC_REAL(pthread_spin_unlock)(lock);
    runner* driver = installation::get().driver();
    if (driver != nullptr && driver->mode() != poll_mode::spin) driver->help();
    return result;
}

SOFTNIC_EXPORT int sigaction(int number, const struct sigaction* wish, struct sigaction* previous) noexcept {
    if (fault_handler::owns(number)) return fault_handler::exchange_program_action(number, wish, previous);
    return SOFTNIC_REAL(sigaction)(number, wish, previous);
}

SOFTNIC_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
    if (!fault_handler::owns(number)) return SOFTNIC_REAL(signal)(number, handler);
    struct sigaction wish {};
    struct sigaction previous {};
    wish.sa_handler = handler;
    wish.sa_flags = SA_RESTART;
    fault_handler::exchange_program_action(number, &wish, &previous);
    return previous.sa_handler;
}
