// SPDX-License-Identifier: Apache-2.0
#include "shim/installation.hpp"

#include "abi/dispatch.hpp"
#include "dma/fault_handler.hpp"
#include "dma/guarded.hpp"
#include "shim/cuda_plugin.hpp"
#include "shim/real.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace accel::softnic {
namespace {

constexpr std::string_view command_file_name = "softnic-uverbs";  ///< and the device's number behind it

bool is_same_file(int one, int other) {
    struct stat first {};
    struct stat second {};
    if (SOFTNIC_REAL(fstat)(one, &first) != 0 || SOFTNIC_REAL(fstat)(other, &second) != 0) return false;
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

installation::installation() : notes_(std::make_unique<std::atomic<std::int8_t>[]>(max_descriptor)) {}

constinit std::atomic<installation*> installation::only{nullptr};

installation& installation::get() {
    installation* const found = only.load(std::memory_order_acquire);
    return found != nullptr ? *found : make();
}

/// Several threads may be the first.
installation& installation::make() {
    installation* first = nullptr;
    auto* const made = new installation;
    if (!only.compare_exchange_strong(first, made, std::memory_order_acq_rel)) {
        delete made;
        return *first;
    }
    static std::atomic_flag registered;
    if (!registered.test_and_set()) ::pthread_atfork(nullptr, nullptr, &installation::after_fork_in_child);
    return *made;
}

/// SOFTNIC_STATS=1: one line at the end. Without the lock: at exit a stale number is better than a wait.
void installation::print_statistics() const {
    const char* wanted = std::getenv("SOFTNIC_STATS");
    if (nic_ == nullptr || driver() == nullptr || wanted == nullptr || *wanted != '1') return;
    const counters& count = nic_->state.count;
    fmt::print(stderr,
               "softnic: node {} doorbells {} wqes {} cqes {} sent {} received {} faults {} retransmissions {} "
               "timeouts {} naks {} late messages {} of {}, {} us behind the link, device CPU {:.3f} s\n",
               nic_->state.node(), count.doorbells, count.wqes, count.cqes, count.packets_sent, count.packets_received,
               nic_->state.faults.fired(), count.retransmissions, count.timeouts, count.naks_sent, count.late_messages,
               count.timed_messages, count.lateness_ns / 1000, static_cast<double>(driver()->cpu_ns()) / 1e9);
}

void installation::at_exit() const {
    print_statistics();
    if (nic_ != nullptr && driver() != nullptr) nic_->state.net->remove_if_last();
}

__attribute__((destructor)) static void at_exit() {
    installation::get().at_exit();
}

const settings* installation::configuration() {
    const std::lock_guard lock(mutex_);
    if (settings_failed_) return nullptr;
    if (settings_) return &*settings_;
    try {
        settings_ = settings_from_environment();
    } catch (const std::exception& error) {
        settings_failed_ = true;
        fmt::print(stderr, "softnic: {}\n", error.what());
        return nullptr;
    }
    return &*settings_;
}

bool installation::start() {
    if (nic_ != nullptr) return true;
    const settings* chosen = configuration();
    if (chosen == nullptr) return false;
    try {
        fault_handler::use_sigaction(SOFTNIC_REAL(sigaction));
        guarded::install_fault_handler();
        fabric::remove_unused();
        nic_ = new nic(*chosen, fabric::join(chosen->fabric, chosen->configuration_hash()));
        if (chosen->cuda != cuda_dma::off) nic_->state.dma.add(make_cuda_plugin(*chosen));
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return false;
    }
    auto* driver = new runner(*nic_);
    driver->start();
    driver_.store(driver, std::memory_order_release);
    return true;
}

/// The thread is gone, another one may have held the locks, and the objects are the parent's. The child
/// starts without devices and opens its own, as another process of the fabric.
void installation::after_fork_in_child() {
    const installation* const parents = only.exchange(nullptr);
    if (parents != nullptr && parents->nic_ != nullptr) parents->nic_->state.net->abandon();
}

int installation::open_device(int index) {
    const std::lock_guard lock(mutex_);
    if (!start() || index < 0 || static_cast<std::size_t>(index) >= nic_->state.devices.size()) {
        errno = ENODEV;
        return -1;
    }
    const int file =
        ::memfd_create(fmt::format("{}{}", command_file_name, index).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return -1;
    if (file >= max_descriptor) {
        SOFTNIC_REAL(close)(file);
        errno = EMFILE;
        return -1;
    }
    ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
    contexts_[file] = std::make_shared<context>(*nic_, index, file);
    note(file, static_cast<std::int8_t>(first_device + index));
    return file;
}

std::int8_t installation::note_of(int descriptor) const {
    if (descriptor < 0 || descriptor >= max_descriptor) return foreign;
    return notes_[static_cast<std::size_t>(descriptor)].load(std::memory_order_acquire);
}

void installation::note(int descriptor, std::int8_t what) {
    if (descriptor < max_descriptor) notes_[static_cast<std::size_t>(descriptor)] = what;
}

int installation::device_of_duplicate(int descriptor) {
    char target[64]{};
    const std::string link = fmt::format("/proc/self/fd/{}", descriptor);
    if (SOFTNIC_REAL(readlink)(link.c_str(), target, sizeof target - 1) < 0) return -1;
    const std::string_view name = target;
    const std::string prefix = fmt::format("/memfd:{}", command_file_name);
    if (!name.starts_with(prefix) || name.size() == prefix.size()) return -1;
    return name[prefix.size()] - '0';
}

int installation::device_of(int descriptor) const {
    return std::max(note_of(descriptor) - first_device, -1);
}

int installation::control(int descriptor, ib_uverbs_ioctl_hdr* header) {
    if (device_of(descriptor) < 0 && device_of_duplicate(descriptor) < 0) return -1;
    const std::lock_guard lock(mutex_);
    const auto target = find_context(descriptor);
    if (target == nullptr) return -1;
    const int result = dispatch(*target, header);
    note_event_descriptors(*target);
    return result;
}

/// A duplicate gets an entry of its own. Not every file with our name is one: a child of fork() has its parent's.
std::shared_ptr<context> installation::find_context(int descriptor) {
    if (const auto found = contexts_.find(descriptor); found != contexts_.end()) return found->second;
    for (const auto& [file, each] : contexts_) {
        if (!is_same_file(file, descriptor)) continue;
        note(descriptor, static_cast<std::int8_t>(first_device + each->device_index()));
        return contexts_[descriptor] = each;
    }
    return nullptr;
}

/// The last duplicate closes the context.
void installation::close_command_file(int descriptor) {
    const auto closed = contexts_.extract(descriptor);
    if (closed.empty()) return;
    for (const auto& [file, each] : contexts_)
        if (each == closed.mapped()) each->use_command_file(file);
}

void installation::note_event_descriptors(const context& of) {
    for (const auto* pipes : {&of.channels, &of.asynchronous_pipes})
        for (const auto& [descriptor, pipe] : *pipes) note(descriptor, event);
    for (const auto& [descriptor, channel] : of.devx_space.channels) note(descriptor, devx_channel);
}

void installation::on_close(int descriptor) {
    const std::int8_t what = note_of(descriptor);
    if (what == foreign || nic_ == nullptr || inside_model() || driver() == nullptr) return;
    const std::lock_guard lock(mutex_);
    const model_guard guard(*nic_);
    note(descriptor, foreign);
    if (what == event || what == devx_channel) {
        for (const auto& [file, each] : contexts_)
            if (each->forget_descriptor(descriptor)) return;
        return;
    }
    close_command_file(descriptor);
}

bool installation::is_event_descriptor(int descriptor) const {
    const std::int8_t what = note_of(descriptor);
    return what == event || what == devx_channel;
}

bool installation::is_event_channel(int descriptor) const {
    return note_of(descriptor) == devx_channel;
}

/// The channel's own lock is enough for the read, so that events do not wait for the device.
ssize_t installation::read_event(int descriptor, std::span<std::byte> to) {
    std::shared_ptr<event_channel> channel;
    {
        const std::lock_guard lock(mutex_);
        const model_guard guard(*nic_);
        for (const auto& [file, each] : contexts_)
            if ((channel = each->find_event_channel(descriptor))) break;
    }
    return channel ? channel->read(to) : -EIO;
}

bool installation::has_event(int descriptor) {
    const std::lock_guard lock(mutex_);
    const model_guard guard(*nic_);
    for (const auto& [file, each] : contexts_)
        if (const event_pipe* pipe = each->find_pipe(descriptor)) return pipe->readable();
    for (const auto& [file, each] : contexts_)
        if (const auto channel = each->find_event_channel(descriptor)) return channel->readable();
    return true;
}

}  // namespace accel::softnic
